/** One value that a watch of the API server tells, or else the state on disk. */
export class Followed<Value> {
  readonly #onTold: () => void;
  #value: Value | undefined;
  #onChange: ((value: Value) => void) | undefined;

  /** `onTold`: the API server has said it. */
  constructor(onTold: () => void) {
    this.#onTold = onTold;
  }

  get value(): Value | undefined {
    return this.#value;
  }

  /** Passes on what `watch` says. */
  follow(watch: (onChange: (value: Value) => void) => void, onChange: (value: Value) => void): void {
    this.#onChange = onChange;
    // The state on disk may be in place already.
    if (this.#value !== undefined) onChange(this.#value);
    watch((value) => {
      this.#value = value;
      onChange(value);
      this.#onTold();
    });
  }

  /** From disk. What the API server has said counts more. */
  restore(value: Value): void {
    if (this.#value !== undefined) return;
    this.#value = value;
    this.#onChange?.(value);
  }
}
