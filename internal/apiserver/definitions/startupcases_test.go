package definitions

import (
	"strings"

	"github.com/everynode/everynode/internal/objects/nodestartup"
)

func startupCases() []objectCase {
	spec := func(fields string) string {
		return "spec: {groups: [{daemonSets: [{namespace: a, name: b}]}], " + fields + "}"
	}
	group := func(fields string) string {
		return "spec: {groups: [{daemonSets: [{namespace: a, name: b}], " + fields + "}]}"
	}
	daemon := func(fields string) string { return "spec: {groups: [{daemonSets: [{" + fields + "}]}]}" }
	one := func(n int) string { return "{daemonSets: [" + times(n, "{namespace: a, name: n%d}, ") + "]}" }
	const long = "0123456789"
	return []objectCase{
		{"nothing", "", false},
		{"no groups", "spec: {}", false},
		{"an empty list of groups", "spec: {groups: []}", false},
		{"the least", "spec: {groups: [{daemonSets: [{namespace: a, name: b}]}]}", true},
		{"everything", `
spec:
  nodes: {matchLabels: {fleet: edge}, matchExpressions: [{key: a, operator: NotIn, values: [b]}]}
  gate: Join
  groups:
  - {daemonSets: [{namespace: kube-system, name: cni}, {namespace: kube-system, name: storage}]}
  - {daemonSets: [{namespace: kube-system, name: log-agent}], timeout: 5m, then: Open}`, true},
		{"an unknown key", spec("node: {}"), false},
		{"no gate", spec("gate: None"), true},
		{"an empty gate", spec(`gate: ""`), true},
		{"a gate that nobody knows", spec("gate: Closed"), false},
		{"a group of nothing", "spec: {groups: [{timeout: 1m}]}", false},
		{"a group of an empty list", "spec: {groups: [{daemonSets: []}]}", false},
		{"as many DaemonSets as may be", "spec: {groups: [" + one(nodestartup.MaxDaemonSets) + "]}", true},
		{"too many DaemonSets", "spec: {groups: [" + one(nodestartup.MaxDaemonSets+1) + "]}", false},
		{"as many groups as may be", "spec: {groups: [" +
			times(nodestartup.MaxGroups, "{daemonSets: [{namespace: a, name: n%d}]}, ") + "]}", true},
		{"too many groups", "spec: {groups: [" +
			times(nodestartup.MaxGroups+1, "{daemonSets: [{namespace: a, name: n%d}]}, ") + "]}", false},
		{"a DaemonSet twice in a group", "spec: {groups: [{daemonSets: [{namespace: a, name: b}, {namespace: a, name: b}]}]}",
			false},
		{"a DaemonSet in two groups",
			"spec: {groups: [{daemonSets: [{namespace: a, name: b}]}, {daemonSets: [{namespace: a, name: b}]}]}", false},
		{"two of one name in two namespaces",
			"spec: {groups: [{daemonSets: [{namespace: a, name: b}]}, {daemonSets: [{namespace: c, name: b}]}]}", true},
		{"no name", daemon("namespace: a"), false},
		{"no namespace", daemon("name: a"), false},
		{"an empty name", daemon(`namespace: a, name: ""`), false},
		{"a name with dots", daemon("namespace: a, name: b.c"), true},
		{"a namespace with dots", daemon("namespace: a.b, name: c"), false},
		{"a name in capitals", daemon("namespace: a, name: B"), false},
		{"a namespace that is too long", daemon("name: a, namespace: a" + strings.Repeat("b", 63)), false},
		{"a name that is too long", daemon("namespace: a, name: a" + strings.Repeat("b", 253)), false},
		{"a timeout", group("timeout: 1h30m"), true},
		{"an empty timeout", group(`timeout: ""`), true},
		{"a timeout without a unit", group(`timeout: "90"`), false},
		{"a timeout that is too short", group("timeout: 999ms"), false},
		{"a timeout of less than nothing", group("timeout: -1m"), false},
		{"open after no timeout", group("then: Open"), false},
		{"open after an empty timeout", group(`timeout: "", then: Open`), false},
		{"open after a timeout", group("timeout: 1s, then: Open"), true},
		{"wait without one", group("then: Wait"), true},
		{"an empty then", group(`then: ""`), true},
		{"a then that nobody knows", group("timeout: 1s, then: Close"), false},
		{"all nodes", spec("nodes: {}"), true},
		{"a bad label", spec(`nodes: {matchLabels: {"a b": c}}`), false},
		{"in nothing", spec("nodes: {matchExpressions: [{key: a, operator: In}]}"), false},
		{"a value that is too long", spec("nodes: {matchLabels: {a: " + strings.Repeat(long, 7) + "}}"), false},
	}
}
