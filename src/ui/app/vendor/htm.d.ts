declare const htm: {
  bind<Node>(
    h: (type: never, props: never, ...children: never[]) => Node,
  ): (strings: TemplateStringsArray, ...values: unknown[]) => Node;
};
export default htm;
