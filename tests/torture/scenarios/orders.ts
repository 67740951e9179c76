/** What a client asks for: the input of the job "order". */
export interface OrderInput {
  /** How many steps it takes. */
  steps: number;
  /** How long a step takes on average, in milliseconds. */
  stepMs: number;
  /** Whether the first attempt at the second step fails. */
  hasRetry: boolean;
  /** How much room the result of each step takes. */
  bytes: number;
  /** Makes the input as large as it is to be. */
  padding: string;
}

/** What a step of the job "order" answers: something else each time that it is executed. */
export interface Receipt {
  /** Made when the step was executed. */
  receipt: string;
  /** Makes the result as large as it is to be. */
  padding: string;
}
