package foreign

import (
	"cmp"
	"context"
	"flag"
	"testing"
)

var earlier = flag.String("earlier", "",
	"everynode of an earlier commit, from which TestUpgradeKubernetes upgrades; this one without")

// TestUpgradeKubernetes goes from an earlier controller to this one and back while a change waits for approval, one
// replica after the other, with the definitions of each. No pod restarts by it, what is lost meanwhile comes back as it
// was, and the change goes on.
func TestUpgradeKubernetes(t *testing.T) {
	b := &beside{cluster: start(t, nodes)}
	b.front = newFront(t)
	now := b.everynode
	before := cmp.Or(*earlier, now)
	b.everynode = before
	b.prepares(t)
	b.begins(t)
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", policy))
	b.phase(t, "Complete")
	b.kubectl(t, "apply", "-f", "agent-2.yaml")
	b.phase(t, "WaitingForApproval")
	for _, to := range []string{now, before, now} {
		pods, written := b.pods(t), b.written(t)
		b.everynode = to
		b.kinds(t)
		for i, p := range b.replicas {
			p.stop()
			b.replicas[i] = b.begin(p.name, to, p.cmd.Args[1:]...)
			await(t, "the replica answers", func(ctx context.Context) error { return reachable(ctx, b.shows[i]) })
		}
		b.phase(t, "WaitingForApproval")
		b.samePods(t, pods)
		if is := b.written(t); is != written {
			t.Errorf("the DaemonSet is\n%s\nand was\n%s", is, written)
		}
		b.lose(t, "1")
		b.lose(t, "2")
		b.with(t, map[string]int{"1": nodes - 2, "2": 2})
	}
	b.run(t, "rollout", "approve", "daemonset/agent").ends(t, 0)
	b.phase(t, "Complete")
	b.images(t, "example.com/agent:2")
	b.refusals(besideAccount, 100)
}
