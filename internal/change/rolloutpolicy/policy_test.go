package rolloutpolicy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestWhatAPolicyMustLookLike(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty is good", ``, ""},
		{"the longest", `
selector: {matchLabels: {tier: agent}}
waves:
- {name: canary, nodes: {matchLabels: {fleet: canary}}, soak: 10m, approval: Manual}
- {name: some, percent: 1, spreadBy: kubernetes.io/arch}
- {name: old, nodes: {matchLabels: {os: old}}, ramp: {from: 2, factor: 3}, soak: 1m}
- {name: zones, each: topology.kubernetes.io/zone, maxUnavailable: 10%, soak: 5m}
domains: [{key: example.com/rack, maxUnavailable: 1}]
failure: {max: 5%, min: 2, startDeadline: 5m, restarts: 3, then: Rollback}
nodeFaults: {max: 20%}
windows: [{days: [Mon, Tue], from: "09:00", to: "16:00", timeZone: Europe/Berlin}]
pace: {nodesPerMinute: 200}`, ""},
		{"a wave that is none", `waves: [{name: a}]`, "spec.waves[0]: Invalid value: \"a\": must have exactly one of nodes, count, percent and each"},
		{"a wave that is two", `waves: [{name: a, count: 1, percent: 2}]`, "must have exactly one of"},
		{"two of one name", `waves: [{name: a, count: 1}, {name: a, count: 2}]`, "spec.waves[1].name: Duplicate value"},
		{"the name of the last", `waves: [{name: rest, count: 1}]`, "is the name of the last wave"},
		{"no name", `waves: [{count: 1}]`, "spec.waves[0].name: Required value"},
		{"a wave after one that takes all", `waves: [{name: zones, each: zone}, {name: a, count: 1}]`, `spec.waves[1]: Invalid value: "a": gets no node: the wave zones before it takes all`},
		{"a wave after all of a hundred", `waves: [{name: all, percent: 100}, {name: a, count: 1}]`, "the wave all before it takes all"},
		{"a wave after an empty selector", `waves: [{name: all, nodes: {}}, {name: a, count: 1}]`, "the wave all before it takes all"},
		{"a wave that takes what was taken", `waves: [{name: a, nodes: {matchLabels: {x: y}}}, {name: b, count: 1}, {name: c, nodes: {matchLabels: {x: y}}}]`, "spec.waves[2]: Invalid value: \"c\": gets no node: the wave a before it takes the same"},
		{"waves that overlap in part", `waves: [{name: a, nodes: {matchLabels: {x: y}}}, {name: b, nodes: {matchLabels: {x: y, z: z}}}, {name: c, percent: 99}, {name: d, each: zone}]`, ""},
		{"too many terms", "selector: {matchLabels: {" + numbered("l%d: x, ", MaxTerms+1) + "}}", "spec.selector.matchLabels: Too many"},
		{"too many expressions", "selector: {matchExpressions: [" + numbered("{key: l%d, operator: Exists}, ", MaxTerms+1) + "]}", "spec.selector.matchExpressions: Too many"},
		{"too many values", "selector: {matchExpressions: [{key: a, operator: In, values: [" + numbered("v%d, ", MaxValues+1) + "]}]}", "spec.selector.matchExpressions[0].values: Too many"},
		{"a name with a slash", `waves: [{name: a/b, count: 1}]`, "spec.waves[0].name: Invalid value"},
		{"over a hundred", `waves: [{name: a, percent: 101}]`, "spec.waves[0].percent: Invalid value: 101: must be at most 100"},
		{"nothing", `waves: [{name: a, count: 0}]`, "must be at least 1"},
		{"no time to fetch", `waves: [{name: a, count: 1, fetch: true, fetchDeadline: 0s}]`, "must be greater than 0"},
		{"a deadline for nothing", `waves: [{name: a, count: 1, fetchDeadline: 1m}]`, "is for waves with fetch"},
		{"less than nothing", `waves: [{name: a, count: 1, soak: -1s}]`, "must not be negative"},
		{"a length of time that is none", `waves: [{name: a, count: 1, soak: 1d}]`, `spec.waves[0].soak: Invalid value: "1d": must be a length of time, such as 90s or 1h30m`},
		{"a limit of nothing", `waves: [{name: a, count: 1, maxUnavailable: 0}]`, "must be at least 1"},
		{"a limit over all", `waves: [{name: a, count: 1, maxUnavailable: 101%}]`, "percentage from 1% to 100%"},
		{"a limit that is a word", `domains: [{key: rack, maxUnavailable: many}]`, "must be a number of nodes or a percentage"},
		{"a percentage with a sign", `domains: [{key: rack, maxUnavailable: +5%}]`, "must be a number of nodes or a percentage"},
		{"spread where all are taken", `waves: [{name: a, each: zone, spreadBy: rack}]`, "spec.waves[0].spreadBy: Forbidden"},
		{"a ramp of a number", `waves: [{name: a, count: 10, ramp: {}}]`, "spec.waves[0].ramp: Forbidden: is for waves with nodes"},
		{"a ramp from nothing", `waves: [{name: a, nodes: {}, ramp: {from: 0}}]`, "spec.waves[0].ramp.from: Invalid value: 0: must be at least 1"},
		{"a ramp that does not grow", `waves: [{name: a, nodes: {}, ramp: {factor: 1}}]`, "spec.waves[0].ramp.factor: Invalid value: 1: must be between 2 and 1000"},
		{"an approval that nobody knows", `waves: [{name: a, count: 1, approval: Maybe}]`, `supported values: "Automatic", "Manual"`},
		{"no domain", `domains: [{key: "", maxUnavailable: 1}]`, "spec.domains[0].key: Required value"},
		{"a domain twice", `domains: [{key: rack, maxUnavailable: 1}, {key: rack, maxUnavailable: 2}]`, "spec.domains[1].key: Duplicate value"},
		{"a label that is none", `waves: [{name: a, each: "-x"}]`, "spec.waves[0].each: Invalid value"},
		{"a day that is none", `windows: [{days: [Monday], from: "09:00", to: "10:00"}]`, "spec.windows[0].days[0]: Unsupported value"},
		{"a time that is none", `windows: [{from: "9:00", to: "24:01"}]`, "spec.windows[0].from: Invalid value: \"9:00\""},
		{"an end that is none", `windows: [{from: "09:00", to: "24:01"}]`, "spec.windows[0].to: Invalid value"},
		{"an action that nobody knows", `failure: {then: Panic}`, "spec.failure.then: Unsupported value"},
		{"no time to start", `failure: {startDeadline: 0s}`, "must be greater than 0"},
		{"standing still", `pace: {nodesPerMinute: 0}`, "spec.pace.nodesPerMinute: Invalid value: 0: must be at least 1"},
		{"a selector that is none", `selector: {matchExpressions: [{key: a, operator: Perhaps}]}`, "spec.selector.matchExpressions[0].operator"},
		{"too many waves", "waves:\n" + strings.Repeat("- {name: a, count: 1}\n", MaxWaves+1), "Too many"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var spec v1alpha1.RolloutPolicySpec
			if err := yaml.UnmarshalStrict([]byte(c.text), &spec); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := Validate(&spec, field.NewPath("spec")).ToAggregate(); err != nil {
				got = err.Error()
			}
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("it is refused with %q\nwant %q", got, c.want)
			}
		})
	}
}

// Each wave is compared with all before it, so nothing is said of the waves of a policy that has too many.
func TestTooManyWavesAreNotCompared(t *testing.T) {
	spec := v1alpha1.RolloutPolicySpec{Waves: make([]v1alpha1.Wave, 8000)}
	errs := Validate(&spec, field.NewPath("spec"))
	if len(errs) != 1 || errs[0].Type != field.ErrorTypeTooMany {
		t.Errorf("%d errors, the first is %v", len(errs), errs[0])
	}
}

// numbered repeats a text with the numbers from 0.
func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func TestWhatARolloutMustLookLike(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty is good", ``, ""},
		{"everything", `{paused: true, approved: {revision: abc, digest: DIGEST, step: zones/a}, retry: {revision: abc, digest: DIGEST, count: 2}, abort: {revision: abc, digest: DIGEST}}`, ""},
		{"an approval of nothing", `approved: {digest: DIGEST, step: canary}`, "spec.approved.revision: Required value"},
		{"an approval of no step", `approved: {revision: abc, digest: DIGEST}`, "spec.approved.step: Required value"},
		{"a retry of nothing", `retry: {digest: DIGEST, count: 1}`, "spec.retry.revision: Required value"},
		{"no try", `retry: {revision: abc, digest: DIGEST}`, "spec.retry.count: Invalid value: 0: must be at least 1"},
		{"an approval by 32 bits", `approved: {revision: abc, step: canary}`, `spec.approved.digest: Invalid value: "": must be status.targetDigest of the rollout; everynode rollout approve, retry and abort write it`},
		{"a retry by 32 bits", `retry: {revision: abc, digest: abc, count: 1}`, `spec.retry.digest: Invalid value: "abc": must be status.targetDigest`},
		{"an abort by 32 bits", `abort: {revision: abc}`, "spec.abort.digest: Invalid value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var spec v1alpha1.DaemonSetRolloutSpec
			if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(c.text, "DIGEST", "sha256:"+strings.Repeat("0a", 32))), &spec); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := ValidateRollout(&spec, field.NewPath("spec")).ToAggregate(); err != nil {
				got = err.Error()
			}
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("it is refused with %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestTimeZonesThatDoNotExist(t *testing.T) {
	for _, zone := range []string{"Europe/Berlyn", "Local", "local", "../../etc/passwd"} {
		spec := v1alpha1.RolloutPolicySpec{Windows: []v1alpha1.Window{{From: "09:00", To: "10:00", TimeZone: zone}}}
		if errs := Validate(&spec, field.NewPath("spec")); len(errs) > 0 {
			t.Errorf("%s: a definition could not know: %v", zone, errs)
		}
		if _, err := Compile(&spec, time.LoadLocation); err == nil || !strings.Contains(err.Error(), "spec.windows[0].timeZone") {
			t.Errorf("%s: the error is %v", zone, err)
		}
	}
}

// FuzzPolicies: whatever passes Validate compiles, but for time zones, and sorts nodes.
func FuzzPolicies(f *testing.F) {
	f.Add(`waves: [{name: a, count: 3, spreadBy: zone}, {name: b, each: zone}]`)
	f.Add(`windows: [{days: [Sat], from: "23:00", to: "01:00"}]`)
	f.Fuzz(func(t *testing.T, text string) {
		var spec v1alpha1.RolloutPolicySpec
		if yaml.UnmarshalStrict([]byte(text), &spec) != nil || len(Validate(&spec, field.NewPath("spec"))) > 0 {
			return
		}
		p, err := Compile(&spec, func(string) (*time.Location, error) { return time.UTC, nil })
		if err != nil {
			if strings.Contains(err.Error(), "timeZone") {
				return
			}
			t.Fatalf("it is valid and does not compile: %v", err)
		}
		p.Windows.Open(time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC))
		fleet := NewFleet(p)
		for _, n := range []string{"a", "b", "c"} {
			fleet.Set(n, map[string]string{"zone": n})
		}
		for _, s := range fleet.Steps() {
			if back, ok := p.StepNamed(p.StepName(s)); !ok || back != s {
				t.Fatalf("step %v is named %s and read as %v", s, p.StepName(s), back)
			}
		}
	})
}
