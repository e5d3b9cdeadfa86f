// The TypeScript client 2.x: `mode` is what it calls version negotiation (`auto`, `legacy`).
import { fill, require, serve } from "./lines.mjs";

const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

await serve(async ({ server, mode, forms }) => {
  const client = new Client(
    { name: "tests", version: "0" },
    { versionNegotiation: { mode }, capabilities: forms ? { elicitation: { form: {} } } : {} },
  );
  if (forms) client.setRequestHandler("elicitation/create", fill);
  const notifications = [];
  client.fallbackNotificationHandler = async (notification) => void notifications.push(notification);
  await client.connect(
    server.url
      ? new StreamableHTTPClientTransport(new URL(server.url))
      : new StdioClientTransport({ ...server, stderr: "inherit" }),
  );
  return {
    notifications,
    protocol: () => client.getNegotiatedProtocolVersion(),
    tools: () => client.listTools(),
    call: (params) => client.callTool(params),
    close: () => client.close(),
  };
});
