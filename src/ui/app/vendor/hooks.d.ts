// The part of the types of Preact's hooks that the dashboard needs.
export function useErrorBoundary(listener: (error: any) => void): [error: any, reset: () => void];
export function useState<S>(initial: S | (() => S)): [S, (next: S | ((last: S) => S)) => void];
export function useState<S = undefined>(): [S | undefined, (next: S | undefined) => void];
export function useEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useMemo<T>(make: () => T, inputs: readonly unknown[]): T;
export function useCallback<T>(callback: T, inputs: readonly unknown[]): T;
export function useRef<T>(initial: T): { current: T };
export function useRef<T>(initial: T | null): { current: T | null };
