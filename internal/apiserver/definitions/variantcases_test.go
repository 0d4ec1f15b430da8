package definitions

import "strings"

func variantCases() []objectCase {
	formula := func(text string) string {
		return "spec: {resources: {agent: {requests: {memory: \"" + text + "\"}}}}"
	}
	return []objectCase{
		{"nothing", "", true},
		{"everything", `
spec:
  daemonSets: {matchLabels: {app: log-agent}}
  nodes: {matchExpressions: [{key: size, operator: In, values: [xl]}]}
  priority: 10
  patch: {metadata: {annotations: {a: b}}, spec: {containers: [{name: agent, env: [{name: THREADS, value: "8"}]}]}}
  resources: {agent: {requests: {cpu: "0.1"}, limits: {memory: "node.allocatable.memory * 0.01"}}}`, true},
		{"a patch with a null", "spec: {patch: {spec: {priorityClassName: null}}}", true},
		{"a patch that is no object", "spec: {patch: 7}", false},
		{"a field that is not there", "spec: {node: {}}", false},
		{"an empty formula", formula(""), false},
		{"a long formula", formula("1.0" + strings.Repeat("+1", 511)), false},
		{"a formula of something else", "spec: {resources: {agent: {requests: {pods: \"1\"}}}}", false},
		{"no name of a container", "spec: {resources: {Agent_: {}}}", false},
		{"the longest name", "spec: {resources: {" + strings.Repeat("a", 63) + ": {}}}", true},
		{"a name that is too long", "spec: {resources: {" + strings.Repeat("a", 64) + ": {}}}", false},
		{"twenty containers", "spec: {resources: {" + times(20, "c%d: {}, ") + "}}", true},
		{"too many containers", "spec: {resources: {" + times(21, "c%d: {}, ") + "}}", false},
		{"a bad key of a label", "spec: {nodes: {matchLabels: {\"a b\": c}}}", false},
		{"a bad value of a label", "spec: {daemonSets: {matchLabels: {a: \"b c\"}}}", false},
		{"In without values", "spec: {nodes: {matchExpressions: [{key: size, operator: In}]}}", false},
		{"too many terms", "spec: {nodes: {matchLabels: {" + times(21, "k%d: v, ") + "}}}", false},
	}
}
