/** The statuses of jsr:@std/http/status that the tests in tests/jsr use. */
export const STATUS_CODE = { OK: 200, BadRequest: 400, NotFound: 404, MethodNotAllowed: 405 } as const;
