import { createHash, timingSafeEqual } from "node:crypto";
import type { HandlerAuth } from "@holdfast/jobs";

/**
 * Admits everybody who sends the token (`Authorization: Bearer ...`). Replace it by your users: `authenticate` returns
 * who is calling, and the other functions decide what that caller may do.
 */
export function tokenAuth(token: string): HandlerAuth<void> {
  const expected = sha256(`Bearer ${token}`);
  return {
    authenticate(request) {
      const given = sha256(request.headers.get("authorization") ?? "");
      if (timingSafeEqual(given, expected)) return;
      throw Response.json({ error: "The token is missing or wrong" }, {
        status: 401,
        headers: { "www-authenticate": "Bearer" },
      });
    },
    onTrigger() {},
    onRunAccess() {},
    onOperate() {},
    scopeRuns: (_caller, filter) => filter,
    open: ["ui", "health"], // the files of the dashboard hold no data: it asks for the token
  };
}

function sha256(text: string) {
  return createHash("sha256").update(text).digest();
}
