package foreign

import (
	"context"
	"fmt"
	"strings"
	"testing"

	besides "github.com/everynode/everynode/internal/beside"
)

// TestWrongAccountKubernetes has the controller be told another account than that which makes pods. It notices by the
// first pod, replaces no other, and says so; started again with the right one it goes on.
func TestWrongAccountKubernetes(t *testing.T) {
	const told, is = "system:kube-controller-manager", "system:serviceaccount:kube-system:daemon-set-controller"
	b := &beside{cluster: start(t, nodes)}
	b.front = newFront(t)
	b.prepares(t)
	b.begins(t, "--daemonset-account="+told)
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", policy))
	b.phase(t, "Complete")
	made := b.watchesMade(t)
	b.lose(t, "1")
	b.event(t, besides.OtherAccount, `the account "`+is+`", and --daemonset-account is "`+told+`"`)
	b.shown(t, `everynode_beside_answers_total{about="pod",answer="other account"}`)
	b.kubectl(t, "apply", "-f", "agent-2.yaml")
	await(t, "a condition says what is wrong", func(context.Context) error {
		out := b.kubectl(t, "get", "ds/agent", "-o", "jsonpath={.status.conditions}")
		if !strings.Contains(out, "--daemonset-account is") || !strings.Contains(out, is) {
			return fmt.Errorf("the conditions are %s", out)
		}
		return nil
	})
	b.run(t, "doctor").ends(t, 1).says(t, "its change stands still", is, told)
	total := 0
	for _, times := range made() {
		total += times
	}
	if total != 1 {
		t.Errorf("%d pods were made, and one was lost", total)
	}
	for _, p := range b.replicas {
		p.stop()
	}
	b.begins(t)
	b.phase(t, "WaitingForApproval")
	b.lose(t, "1")
	b.with(t, map[string]int{"1": nodes - 2, "2": 2})
}
