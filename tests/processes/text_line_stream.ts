/** Cuts bytes into lines of text; what comes after the last line break is dropped, since its writer has died. */
export class TextLineStream extends TransformStream<Uint8Array, string> {
  /** Makes a stream that has seen nothing. */
  constructor() {
    const decoder = new TextDecoder();
    let rest = "";
    super({
      transform(bytes, controller) {
        const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
        rest = lines.pop()!;
        for (const line of lines) controller.enqueue(line);
      },
    });
  }
}
