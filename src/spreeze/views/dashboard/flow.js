// Draws the flow of a run. All texts come from flow.py; this file has only the positions.
const WIDE = {
  name: "wide", width: 1100, height: 236, size: [146, 92],
  at: {
    samplers: [2, 62], rings: [191, 62], replay: [380, 62], learner: [569, 62], weights: [758, 62],
    evaluator: [952, 6], viewer: [952, 118],
  },
  paths: {
    "samplers-rings": "M148 108 H185", "rings-replay": "M337 108 H374", "replay-learner": "M526 108 H563",
    "learner-weights": "M715 108 H752",
    "weights-evaluator": "M904 98 H924 V52 H946", "weights-viewer": "M904 118 H924 V164 H946",
    "weights-samplers": "M831 154 V214 H75 V160",
  },
  label: [453, 207],
};
const TALL = {
  name: "tall", width: 340, height: 620, size: [236, 88],
  at: {
    samplers: [52, 2], rings: [52, 108], replay: [52, 214], learner: [52, 320], weights: [52, 426],
    evaluator: [2, 534], viewer: [176, 534],
  },
  small: [162, 84],
  paths: {
    "samplers-rings": "M170 90 V102", "rings-replay": "M170 196 V208", "replay-learner": "M170 302 V314",
    "learner-weights": "M170 408 V420",
    "weights-evaluator": "M110 514 V528", "weights-viewer": "M232 514 V528",
    "weights-samplers": "M288 470 H314 V46 H294",
  },
  label: [321, 258], turned: true,
};

export default {
  template: `
    <div class="flow" role="img" :aria-label="description">
      <svg v-for="plan in plans" :key="plan.name" :class="'flow-' + plan.name" aria-hidden="true"
           :viewBox="'0 0 ' + plan.width + ' ' + plan.height">
        <defs>
          <marker :id="'arrow-' + plan.name" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7"
                  orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" class="flow-arrow"/></marker>
        </defs>
        <g v-for="edge in flow.edges" :key="edge.source + edge.target">
          <path :d="plan.paths[edge.source + '-' + edge.target]" class="flow-edge"
                :marker-end="'url(#arrow-' + plan.name + ')'"/>
          <path v-if="edge.moves" :d="plan.paths[edge.source + '-' + edge.target]" class="flow-moving"/>
          <text v-if="edge.label" class="flow-label" text-anchor="middle"
                :transform="'translate(' + plan.label.join(' ') + ')' + (plan.turned ? ' rotate(90)' : '')"
                >{{ edge.label }}</text>
        </g>
        <g v-for="node in flow.nodes" :key="node.key" :transform="'translate(' + plan.at[node.key].join(' ') + ')'"
           :class="{ 'flow-node': true, 'flow-bottleneck': node.is_bottleneck }">
          <rect :width="size(plan, node)[0]" :height="size(plan, node)[1]" rx="10" class="flow-box"/>
          <text x="14" y="24" class="flow-title">{{ node.title }}</text>
          <text v-for="(line, i) in node.lines" :key="i" x="14" :y="43 + 17 * i" class="flow-line">{{ line }}</text>
          <g v-if="node.level !== null" :transform="'translate(14 ' + (size(plan, node)[1] - 13) + ')'">
            <rect :width="size(plan, node)[0] - 28" height="4" rx="2" class="flow-track"/>
            <rect :width="(size(plan, node)[0] - 28) * node.level" height="4" rx="2" class="flow-level"/>
          </g>
        </g>
      </svg>
    </div>`,
  props: { flow: Object },
  data: () => ({ plans: [WIDE, TALL] }),
  computed: {
    description() {
      const parts = this.flow.nodes.map((node) => `${node.title}: ${node.lines.join(", ")}`);
      return `${this.flow.sentence}. ${parts.join(". ")}.`;
    },
  },
  methods: {
    size(plan, node) {
      return plan.small && ["evaluator", "viewer"].includes(node.key) ? plan.small : plan.size;
    },
  },
};
