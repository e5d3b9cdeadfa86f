// A real authorization server on a free port of loopback: login and consent forms, PKCE, registration, revocation.
// Its first line of output says where it is. `POST /control` sets what it does wrong; `GET /control` what was asked.
import { createServer } from "node:http";
import { createRequire } from "node:module";

const require = createRequire(`${process.argv[2]}/`);
const { default: Provider } = await import(require.resolve("oidc-provider"));

const faults = { html: false, drop_iss: false, lie_issuer: null, no_registration: false, endpoint: null };
const asked = { authorization_code: 0, refresh_token: 0, revocation: 0, registration: 0, resources: [] };
let ttl = 3600;

const server = createServer();
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [
    { client_id: "guard", client_secret: "guarding", redirect_uris: [], response_types: [], grant_types: [] },
    {
      client_id: "known",
      token_endpoint_auth_method: "none",
      application_type: "native",
      redirect_uris: ["http://127.0.0.1/callback"],
      grant_types: ["authorization_code", "refresh_token"],
    },
  ],
  scopes: ["openid", "offline_access", "tools", "admin"],
  cookies: { keys: ["for tests only"] },
  ttl: { AccessToken: () => ttl, AuthorizationCode: 60, RefreshToken: 3600, Session: 3600, Grant: 3600, Interaction: 600 },
  rotateRefreshToken: true,
  features: {
    registration: { enabled: true },
    revocation: { enabled: true, allowedPolicy: () => true },
    introspection: { enabled: true, allowedPolicy: () => true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (ctx, resource) => {
        asked.resources.push(resource);
        return { scope: "tools admin", accessTokenFormat: "opaque", accessTokenTTL: ttl };
      },
    },
  },
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
});
provider.use(async (ctx, next) => {
  await next();
  const grant = ctx.oidc?.route === "token" ? ctx.oidc.params?.grant_type : ctx.oidc?.route;
  if (grant in asked && grant !== "resources") asked[grant] += 1;
  if (ctx.path.startsWith("/.well-known/") && ctx.body?.issuer) {
    if (faults.lie_issuer) ctx.body.issuer = faults.lie_issuer;
    if (faults.no_registration) delete ctx.body.registration_endpoint;
    if (faults.endpoint) ctx.body.token_endpoint = faults.endpoint;
  }
  const location = ctx.response.get("location") ?? "";
  if (faults.drop_iss && location.includes("/callback?")) {
    const url = new URL(location);
    url.searchParams.delete("iss");
    ctx.set("location", url.href);
  }
});
const answer = provider.callback();

server.on("request", (request, response) => {
  if (request.url === "/control") {
    let body = "";
    request.on("data", (chunk) => (body += chunk));
    request.on("end", () => {
      const wish = body ? JSON.parse(body) : {};
      if ("ttl" in wish) ttl = wish.ttl;
      for (const name of Object.keys(faults)) if (name in wish) faults[name] = wish[name];
      response.setHeader("content-type", "application/json");
      response.end(JSON.stringify(asked));
    });
  } else if (faults.html) {
    response.setHeader("content-type", "text/html");
    response.end("<html>maintenance</html>");
  } else if (request.url.startsWith("/.well-known/oauth-authorization-server")) {
    request.url = "/.well-known/openid-configuration";
    answer(request, response);
  } else answer(request, response);
});
console.log(JSON.stringify({ issuer }));
