// Shows the newest picture of the policy. Requests the next one only after the last has arrived, at most ten times per
// second, and none while the page is hidden.
const GAP_MS = 100;
const RETRY_MS = 1000;
const STALE_MS = 5000;

export default {
  template: `
    <div class="robot">
      <img v-show="picture" :src="picture" alt="The policy at work, live" />
      <div v-if="!picture" class="robot-empty"><strong>{{ waiting }}</strong><span>{{ hint }}</span></div>
      <div v-if="picture" class="robot-words">
        <span title="of this episode so far"><b>{{ episodeReturn }}</b> return</span>
        <span title="env steps of this episode so far"><b>{{ steps }}</b> steps</span>
        <span title="version of the weights that play, and how long ago it was published">version
          <b>{{ version }}</b><template v-if="age && !stale">, <b class="robot-age">{{ age }}</b> old</template></span>
        <span v-if="stale" class="robot-stale">no new pictures</span>
      </div>
    </div>`,
  props: { address: String, waiting: String, hint: String },
  data: () => ({
    picture: null, number: 0, newestAt: 0, stale: false,
    episodeReturn: "", steps: "", version: "", age: "", publishedAt: null,
  }),
  mounted() {
    this.ends = false;
    this.wake = () => {};
    this.seen = () => this.wake();
    document.addEventListener("visibilitychange", this.seen);
    this.stop = () => (this.ends = true);
    document.addEventListener("spreeze-end", this.stop);
    this.run();
  },
  unmounted() {
    this.ends = true;
    document.removeEventListener("visibilitychange", this.seen);
    document.removeEventListener("spreeze-end", this.stop);
    this.wake();
    if (this.picture) URL.revokeObjectURL(this.picture);
  },
  methods: {
    pause: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
    async run() {
      while (!this.ends) {
        if (document.hidden) {
          await new Promise((resolve) => (this.wake = resolve));
          continue;
        }
        const askedAt = performance.now();
        let wait = RETRY_MS;
        try {
          const response = await fetch(`${this.address}&after=${this.number}`, { cache: "no-store" });
          if (response.status === 200) await this.show(response);
          if (response.ok) wait = GAP_MS;
        } catch {
          // The server cannot be reached: NiceGUI shows that, and reconnects.
        }
        this.stale = performance.now() - this.newestAt > STALE_MS;
        this.age = this.publishedAt === null ? "" : `${Math.round((performance.now() - this.publishedAt) / 1000)} s`;
        await this.pause(Math.max(0, wait - (performance.now() - askedAt)));
      }
    },
    async show(response) {
      const facts = JSON.parse(response.headers.get("x-frame"));
      const picture = URL.createObjectURL(await response.blob());
      if (this.picture) URL.revokeObjectURL(this.picture);
      this.picture = picture;
      this.number = facts.number;
      this.newestAt = performance.now();
      this.episodeReturn = facts.return;
      this.steps = facts.steps;
      this.version = facts.version;
      this.publishedAt = facts.age_s === null ? null : performance.now() - 1000 * facts.age_s;
    },
  },
};
