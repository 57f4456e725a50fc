// A ring buffer of the newest items, with bounded memory.

export class Ring {
  constructor(capacity) {
    this.capacity = capacity;
    this.items = new Array(capacity);
    this.first = 0;
    this.length = 0;
  }

  push(item) {
    if (this.length < this.capacity) {
      this.items[(this.first + this.length++) % this.capacity] = item;
    } else {
      this.items[this.first] = item;
      this.first = (this.first + 1) % this.capacity;
    }
  }

  /** 0 is the oldest, -1 the newest. */
  at(index) {
    const place = index < 0 ? this.length + index : index;
    return place < 0 || place >= this.length ? undefined : this.items[(this.first + place) % this.capacity];
  }

  clear() {
    this.items.fill(undefined);
    this.first = this.length = 0;
  }

  *[Symbol.iterator]() {
    for (let index = 0; index < this.length; index++) yield this.at(index);
  }
}
