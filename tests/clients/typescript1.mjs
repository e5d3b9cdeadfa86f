// The TypeScript SDK 1.x, as most clients in use have it: it knows the initialize-based protocol only.
import { fill, require, serve } from "./lines.mjs";

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { ElicitRequestSchema } = require("@modelcontextprotocol/sdk/types.js");

await serve(async ({ server, forms }) => {
  const client = new Client(
    { name: "tests", version: "0" },
    { capabilities: forms ? { elicitation: { form: {} } } : {} },
  );
  if (forms) client.setRequestHandler(ElicitRequestSchema, fill);
  const notifications = [];
  client.fallbackNotificationHandler = async (notification) => void notifications.push(notification);
  const transport = server.url
    ? new StreamableHTTPClientTransport(new URL(server.url))
    : new StdioClientTransport({ ...server, stderr: "inherit" });
  let protocol;
  const told = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    protocol = version;
    told?.(version);
  };
  await client.connect(transport);
  return {
    notifications,
    protocol: () => protocol,
    tools: () => client.listTools(),
    call: (params) => client.callTool(params),
    close: () => client.close(),
  };
});
