package definitions

import (
	"fmt"
	"strings"

	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// objectCase is an object, and whether it is good.
type objectCase struct {
	name, text string
	good       bool
}

// times repeats a text with the numbers from 0.
func times(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func policyCases() []objectCase {
	wave := func(fields string) string { return "spec: {waves: [{name: a, " + fields + "}]}" }
	excluded := func(n int) string { return "spec: {content: {exclude: {names: [" + times(n, "n%d, ") + "]}}}" }
	selector := func(fields string) string { return "spec: {selector: {" + fields + "}}" }
	window := func(fields string) string { return "spec: {windows: [{" + fields + "}]}" }
	domain := func(fields string) string { return "spec: {domains: [{" + fields + "}]}" }
	long := strings.Repeat("a", 63)
	return []objectCase{
		{"no spec", "", true},
		{"an empty spec", "spec: {}", true},
		{"the longest", `
spec:
  selector: {matchLabels: {tier: agent}, matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: d, operator: DoesNotExist}]}
  waves:
  - {name: canary, nodes: {matchLabels: {fleet: canary}}, soak: 10m, approval: Manual}
  - {name: few, count: 3, spreadBy: kubernetes.io/arch, maxUnavailable: 1}
  - {name: some, percent: 1, spreadBy: kubernetes.io/arch}
  - {name: old, nodes: {matchLabels: {os: old}}, ramp: {from: 2, factor: 3}}
  - {name: zones, each: topology.kubernetes.io/zone, maxUnavailable: 10%, soak: 5m}
  domains: [{key: example.com/rack, maxUnavailable: 1}, {key: row, maxUnavailable: 20%}]
  failure: {max: 5%, min: 2, startDeadline: 5m, restarts: 3, then: Rollback}
  nodeFaults: {max: 20%}
  windows: [{days: [Mon, Tue], from: "09:00", to: "16:00", timeZone: Europe/Berlin}, {from: "22:00", to: "24:00"}]
  pace: {nodesPerMinute: 200}`, true},
		{"an unknown key", "spec: {wave: []}", false},
		{"an unknown key below", wave("count: 1, sook: 1m"), false},
		{"a status is nobody's business", "spec: {}\nstatus: {matchedCount: 1}", true},
		{"text where a list is meant", "spec: {waves: none}", false},

		{"a wave that is none", "spec: {waves: [{name: a}]}", false},
		{"a wave that is two", wave("count: 1, percent: 2"), false},
		{"a wave that is all", wave("count: 1, percent: 2, each: zone, nodes: {}"), false},
		{"a wave without a name", "spec: {waves: [{count: 1}]}", false},
		{"a wave with an empty name", `spec: {waves: [{name: "", count: 1}]}`, false},
		{"the name of the last", "spec: {waves: [{name: rest, count: 1}]}", false},
		{"a name with a slash", "spec: {waves: [{name: a/b, count: 1}]}", false},
		{"a name with a dot", "spec: {waves: [{name: a.b, count: 1}]}", false},
		{"a long name", "spec: {waves: [{name: " + long + ", count: 1}]}", true},
		{"a name that is too long", "spec: {waves: [{name: a" + long + ", count: 1}]}", false},
		{"two of one name", "spec: {waves: [{name: a, count: 1}, {name: a, count: 2}]}", false},
		{"a hundred", wave("percent: 100"), true},
		{"over a hundred", wave("percent: 101"), false},
		{"no percent", wave("percent: 0"), false},
		{"no node", wave("count: 0"), false},
		{"more nodes than there are numbers", wave("count: 3000000000"), false},
		{"a number in quotes", wave(`count: "1"`), false},
		{"an empty each is none", wave(`count: 1, each: ""`), true},
		{"each of nothing", wave(`each: ""`), false},
		{"a label that is none", wave(`each: "-x"`), false},
		{"a label with two slashes", wave("each: a/b/c"), false},
		{"a long label", wave("each: " + strings.Repeat("a.", 126) + "a/" + long), true},
		{"a label whose prefix is too long", wave("each: " + strings.Repeat("a.", 127) + "a/a"), false},
		{"a label whose name is too long", wave("each: a/a" + long), false},
		{"a prefix in capitals", wave("each: A/a"), false},
		{"spread where all are taken", wave("each: zone, spreadBy: rack"), false},
		{"a ramp", wave("nodes: {}, ramp: {}"), true},
		{"a ramp of a number", wave("count: 10, ramp: {}"), false},
		{"a ramp from nothing", wave("nodes: {}, ramp: {from: 0}"), false},
		{"a ramp that does not grow", wave("nodes: {}, ramp: {factor: 1}"), false},
		{"a ramp that leaps", wave("nodes: {}, ramp: {factor: 1001}"), false},
		{"images that are pinned", "spec: {images: Pinned}", true},
		{"images as written", "spec: {images: AsWritten}", true},
		{"images of nothing", `spec: {images: ""}`, true},
		{"images that are resolved otherwise", "spec: {images: Latest}", false},
		{"content", "spec: {content: {}}", true},
		{"content of both kinds", "spec: {content: {configMaps: Referenced, secrets: Referenced, apply: Restart, settle: 0s}}", true},
		{"content but for some", "spec: {content: {exclude: {names: [ca, b.c], selector: {matchLabels: {a: b}}}}}", true},
		{"content of no kind", `spec: {content: {configMaps: None, secrets: "", apply: "", settle: ""}}`, true},
		{"content of all there is", "spec: {content: {configMaps: All}}", false},
		{"secrets of all there are", "spec: {content: {secrets: All}}", false},
		{"content that settles before it changes", "spec: {content: {settle: -1s}}", false},
		{"content that is applied otherwise", "spec: {content: {apply: Maybe}}", false},
		{"an exclusion that is no name", "spec: {content: {exclude: {names: [A]}}}", false},
		{"an exclusion that is there twice", "spec: {content: {exclude: {names: [a, a]}}}", false},
		{"as many exclusions as may be", excluded(rolloutpolicy.MaxExcluded), true},
		{"too many exclusions", excluded(rolloutpolicy.MaxExcluded + 1), false},
		{"an exclusion by a label that is none", `spec: {content: {exclude: {selector: {matchLabels: {"-a": b}}}}}`, false},
		{"an empty spread", wave(`each: zone, spreadBy: ""`), true},
		{"no soak", wave("count: 1, soak: 0s"), true},
		{"a soak in parts", wave("count: 1, soak: 1h2m3.5s"), true},
		{"less than nothing", wave("count: 1, soak: -1s"), false},
		{"an empty soak", wave(`count: 1, soak: ""`), true},
		{"an empty deadline", `spec: {failure: {startDeadline: ""}}`, true},
		{"a soak without a unit", wave(`count: 1, soak: "10"`), false},
		{"a soak longer than time", wave("count: 1, soak: 9999999999h"), false},
		{"a day is no unit", wave("count: 1, soak: 1d"), false},
		{"a number is no duration", wave("count: 1, soak: 60"), false},
		{"an approval", wave("count: 1, approval: Manual"), true},
		{"an empty approval", wave(`count: 1, approval: ""`), true},
		{"an approval that nobody knows", wave("count: 1, approval: Maybe"), false},
		{"a limit of nothing", wave("count: 1, maxUnavailable: 0"), false},
		{"a limit of no percent", wave("count: 1, maxUnavailable: 0%"), false},
		{"a limit below nothing", wave("count: 1, maxUnavailable: -1"), false},
		{"a limit with zeros before it", wave("count: 1, maxUnavailable: 007%"), true},
		{"a limit over all", wave("count: 1, maxUnavailable: 101%"), false},
		{"a limit of all", wave("count: 1, maxUnavailable: 100%"), true},
		{"a limit in half percents", wave("count: 1, maxUnavailable: 0.5%"), false},
		{"a limit with a sign", wave("count: 1, maxUnavailable: +5%"), false},
		{"a limit in words", wave("count: 1, maxUnavailable: many"), false},
		{"a limit in quotes", wave(`count: 1, maxUnavailable: "5"`), false},
		{"a limit that is a percent sign", wave(`count: 1, maxUnavailable: "%"`), false},
		{"a limit with a broken number", wave("count: 1, maxUnavailable: 1.5"), false},
		{"a limit that is no number of ours", wave("count: 1, maxUnavailable: 3000000000"), false},
		{"a limit that is true", wave("count: 1, maxUnavailable: true"), false},
		{"as many waves as may be", "spec: {waves: [" + times(rolloutpolicy.MaxWaves, "{name: a%d, count: 1}, ") + "]}", true},
		{"too many waves", "spec: {waves: [" + times(rolloutpolicy.MaxWaves+1, "{name: a%d, count: 1}, ") + "]}", false},

		{"a wave after each", "spec: {waves: [{name: a, each: zone}, {name: b, count: 1}]}", false},
		{"a wave after all of a hundred", "spec: {waves: [{name: a, percent: 100}, {name: b, count: 1}]}", false},
		{"a wave after an empty selector", "spec: {waves: [{name: a, nodes: {}}, {name: b, count: 1}]}", false},
		{"a wave after one of no terms", "spec: {waves: [{name: a, nodes: {matchLabels: {}, matchExpressions: []}}, {name: b, count: 1}]}", false},
		{"a wave that takes what was taken", "spec: {waves: [{name: a, nodes: {matchLabels: {x: v}}}, {name: b, count: 1}, {name: c, nodes: {matchLabels: {x: v}}}]}", false},
		{"waves that overlap in part", "spec: {waves: [{name: a, nodes: {matchLabels: {x: v}}}, {name: b, nodes: {matchLabels: {x: v, z: z}}}, {name: c, percent: 99}, {name: d, each: zone}]}", true},

		{"a label's key that is none", selector(`matchLabels: {"-a": b}`), false},
		{"a label without a key", selector(`matchLabels: {"": b}`), false},
		{"a label's key of two parts", selector(`matchLabels: {example.com/a: b}`), true},
		{"a label's key that is too long", selector(`matchLabels: {a` + long + `: b}`), false},
		{"a label's key that is endless", selector(`matchLabels: {"` + strings.Repeat("a.", 400) + `a/b": b}`), false},
		{"a label's value that is none", selector(`matchLabels: {a: "b c"}`), false},
		{"a label's value that is too long", selector(`matchLabels: {a: a` + long + `}`), false},
		{"an empty label", selector(`matchLabels: {a: ""}`), true},
		{"as many labels as may be", selector("matchLabels: {" + times(rolloutpolicy.MaxTerms, "l%d: x, ") + "}"), true},
		{"too many labels", selector("matchLabels: {" + times(rolloutpolicy.MaxTerms+1, "l%d: x, ") + "}"), false},
		{"too many expressions", selector("matchExpressions: [" + times(rolloutpolicy.MaxTerms+1, "{key: l%d, operator: Exists}, ") + "]"), false},
		{"too many values", selector("matchExpressions: [{key: a, operator: In, values: [" + times(rolloutpolicy.MaxValues+1, "v%d, ") + "]}]"), false},
		{"an operator that nobody knows", selector("matchExpressions: [{key: a, operator: Perhaps}]"), false},
		{"no operator", selector("matchExpressions: [{key: a}]"), false},
		{"no key", selector("matchExpressions: [{operator: Exists}]"), false},
		{"in nothing", selector("matchExpressions: [{key: a, operator: In}]"), false},
		{"in an empty list", selector("matchExpressions: [{key: a, operator: NotIn, values: []}]"), false},
		{"existence with values", selector("matchExpressions: [{key: a, operator: Exists, values: [b]}]"), false},
		{"existence with no values", selector("matchExpressions: [{key: a, operator: Exists, values: []}]"), true},
		{"a value that is none", selector(`matchExpressions: [{key: a, operator: In, values: ["b c"]}]`), false},
		{"nodes with a bad key", wave(`nodes: {matchLabels: {"a b": c}}`), false},

		{"no domain", domain("maxUnavailable: 1"), false},
		{"a domain without a limit", domain("key: rack"), false},
		{"a domain with an empty key", domain(`key: "", maxUnavailable: 1`), false},
		{"a domain of no percent", domain("key: rack, maxUnavailable: 0%"), false},
		{"a domain twice", "spec: {domains: [{key: rack, maxUnavailable: 1}, {key: rack, maxUnavailable: 2}]}", false},
		{"too many domains", "spec: {domains: [" + times(rolloutpolicy.MaxDomains+1, "{key: k%d, maxUnavailable: 1}, ") + "]}", false},

		{"no failure is taken", "spec: {failure: {max: 0}}", true},
		{"no percent of failures", "spec: {failure: {max: 0%}}", true},
		{"fewer failures than none", "spec: {failure: {max: -1}}", false},
		{"more failures than all", "spec: {failure: {max: 101%}}", false},
		{"a limit from none", "spec: {failure: {min: 0}}", false},
		{"no restarts", "spec: {failure: {restarts: 0}}", false},
		{"no time to start", "spec: {failure: {startDeadline: 0s}}", false},
		{"an action that nobody knows", "spec: {failure: {then: Panic}}", false},
		{"an empty action", `spec: {failure: {then: ""}}`, true},
		{"all nodes may be at fault", "spec: {nodeFaults: {max: 100%}}", true},
		{"no node may be at fault", "spec: {nodeFaults: {max: 0}}", true},
		{"more than all at fault", "spec: {nodeFaults: {max: 200%}}", false},
		{"standing still", "spec: {pace: {nodesPerMinute: 0}}", false},

		{"a window", window(`from: "00:00", to: "24:00"`), true},
		{"a window over midnight", window(`from: "23:00", to: "01:00"`), true},
		{"a window without a beginning", window(`to: "10:00"`), false},
		{"a window without an end", window(`from: "10:00"`), false},
		{"a window from midnight's end", window(`from: "24:00", to: "01:00"`), false},
		{"a time of one digit", window(`from: "9:00", to: "10:00"`), false},
		{"a time after the last", window(`from: "09:00", to: "24:01"`), false},
		{"a time with a line's end", window(`from: "09:00\n", to: "10:00"`), false},
		{"a day that is none", window(`days: [Monday], from: "09:00", to: "10:00"`), false},
		{"a day twice", window(`days: [Mon, Mon], from: "09:00", to: "10:00"`), false},
		{"every day", window(`days: [Mon, Tue, Wed, Thu, Fri, Sat, Sun], from: "09:00", to: "10:00"`), true},
		{"a zone that nobody can know", window(`from: "09:00", to: "10:00", timeZone: Europe/Berlyn`), true},
		{"an empty zone", window(`from: "09:00", to: "10:00", timeZone: ""`), true},
		{"too many windows", "spec: {windows: [" + strings.Repeat(`{from: "09:00", to: "10:00"}, `, rolloutpolicy.MaxWindows+1) + "]}", false},
	}
}

func rolloutCases() []objectCase {
	digest := "sha256:" + strings.Repeat("0a", 32)
	return []objectCase{
		{"nothing", "", true},
		{"everything", "spec: {paused: true, approved: {revision: abc, digest: " + digest + ", step: zones/a}, retry: {revision: abc, digest: " + digest + ", count: 2}, abort: {revision: abc, digest: " + digest + "}}", true},
		{"an unknown key", "spec: {pause: true}", false},
		{"a word for paused", `spec: {paused: "yes"}`, false},
		{"an approval of nothing", "spec: {approved: {digest: " + digest + ", step: canary}}", false},
		{"an approval of an empty revision", `spec: {approved: {revision: "", digest: ` + digest + `, step: canary}}`, false},
		{"an approval of no step", "spec: {approved: {revision: abc, digest: " + digest + "}}", false},
		{"an approval of a change", "spec: {approved: {revision: abc, digest: " + digest + ", step: canary, change: 9007199254740992}}", true},
		{"an approval of no change", "spec: {approved: {revision: abc, digest: " + digest + ", step: canary, change: 0}}", true},
		{"an approval of less than no change", "spec: {approved: {revision: abc, digest: " + digest + ", step: canary, change: -1}}", false},
		{"an approval of a change that none gets to", "spec: {approved: {revision: abc, digest: " + digest + ", step: canary, change: 9007199254740993}}", false},
		{"a retry of nothing", "spec: {retry: {digest: " + digest + ", count: 1}}", false},
		{"no try", "spec: {retry: {revision: abc, digest: " + digest + "}}", false},
		{"less than no try", "spec: {retry: {revision: abc, digest: " + digest + ", count: -1}}", false},
		{"an approval without a digest", "spec: {approved: {revision: abc, step: canary}}", false},
		{"an approval of an empty digest", `spec: {approved: {revision: abc, digest: "", step: canary}}`, false},
		{"an approval of a revision as its digest", "spec: {approved: {revision: abc, digest: abc, step: canary}}", false},
		{"an approval of a digest that is too long", "spec: {approved: {revision: abc, digest: " + digest + "0, step: canary}}", false},
		{"a retry without a digest", "spec: {retry: {revision: abc, count: 1}}", false},
		{"an abort of nothing", "spec: {abort: {digest: " + digest + "}}", false},
		{"an abort without a digest", "spec: {abort: {revision: abc}}", false},
	}
}
