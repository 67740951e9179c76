/** What is not for Node, and why: a file of tests, or all tests whose name begins so. */
export const LEFT_OUT: Readonly<Record<string, string>> = {
  "tests/http/promtool_test.ts": "it starts a program by Deno.Command",
  "tests/http/sockets_test.ts": "its servers are made by Deno.serve()",
  "tests/http/openapi/validity_test.ts": "its validator reads files that lie beside its own, which a bundle lacks",
  "a handler without mcp has no path /mcp, and loads none of it": "it reads the source, which a bundle lacks",
  "the body of a Response that a hook throws can be cancelled":
    "Node makes branches of one stream of a body and its copy",
  "Deno.serve() ": "its server is made by Deno.serve()",
};
