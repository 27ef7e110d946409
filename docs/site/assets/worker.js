// A page opened from disk may not start a worker, and search runs in one. There, an iframe loads the worker's script instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.frame = Object.assign(document.createElement("iframe"), { hidden: true });
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const load = (source) =>
        new Promise((done) => {
          const script = Object.assign(inside.document.createElement("script"), { src: source, onload: done, onerror: done });
          inside.document.body.append(script);
        });
      inside.importScripts = (...sources) => sources.reduce((before, each) => before.then(() => load(each)), Promise.resolve());
      this.ready = load(url);
    }
    postMessage(data) {
      this.ready = this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
