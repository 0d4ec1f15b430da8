package foreign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// known is within what time after the webhook's return everybody knows of wrong pods.
const known = time.Minute

// TestWebhookAwayKubernetes has nobody answer the API server for a while, in the middle of a change and after one that
// failed.
func TestWebhookAwayKubernetes(t *testing.T) {
	b := &beside{cluster: start(t, nodes)}
	b.front = newFront(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"a policy takes a DaemonSet over", b.takesOver},
		{"both replicas are killed in the middle of a change", b.dies},
		{"the leader is killed", b.leaderDies},
		{"nobody is reached after a revision failed", b.unreachable},
		{"a failed revision is tried again", b.retries},
		{"the policy goes, and comes back", b.policyGoes},
		{"the placement changes", b.moves},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	b.refusals(besideAccount, 100)
}

// kill ends replicas without a word.
func (b *beside) kill(t *testing.T, all ...*process) {
	t.Helper()
	for _, p := range all {
		err := p.cmd.Process.Kill()
		if err != nil {
			t.Fatal(err)
		}
		p.stop()
	}
}

// another is a DaemonSet that a policy may select. No node is for it.
func another(name, tier string) string {
	return strings.NewReplacer("NAME", name, "a-policy", tier, "follows", "tier").Replace(followed)
}

// dies has a change wait for approval, and kills both replicas. Meanwhile only writes to DaemonSets under a policy are
// refused, and pods come with the newest revision; they go back first.
func (b *beside) dies(t *testing.T) {
	before := b.pods(t)
	b.kubectl(t, "apply", "-f", "agent-2.yaml")
	b.phase(t, "WaitingForApproval")
	b.kubectl(t, "apply", "-f", b.write("else.yaml", another("else", "none")))
	b.kill(t, b.replicas...)

	const says = "Everynode's webhook does not answer. Write it again when it does"
	for _, args := range [][]string{
		{"apply", "-f", "agent.yaml"},
		{"create", "-f", b.write("new.yaml", another("new", "agent"))},
		{"patch", "ds/agent", "-p", `{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`},
		{"patch", "ds/agent", "--type=json", "-p", `[{"op":"remove","path":"/metadata/annotations/everynode.io~1update-strategy"},
			{"op":"replace","path":"/spec/updateStrategy","value":{"type":"RollingUpdate"}}]`},
	} {
		b.run(t, append([]string{"kubectl"}, args...)...).ends(t, 1).says(t, says, "everynode controller --leave")
	}
	b.run(t, "kubectl", "patch", "ds/agent", "--type=merge", "-p",
		`{"spec":{"template":{"spec":{"nodeSelector":{"topology.kubernetes.io/zone":"a"}}}}}`).ends(t, 1).
		says(t, `failed calling webhook "placement.everynode.io"`)
	b.kubectl(t, "apply", "-f", "else.yaml")
	b.kubectl(t, "set", "image", "ds/else", "c=example.com/c:2")
	b.kubectl(t, "label", "ds/agent", "seen=away")
	b.kubectl(t, "annotate", "rp/agents", "seen=away")
	b.kubectl(t, "create", "configmap", "away")
	b.kubectl(t, "delete", "ds/else")

	b.lose(t, "1")
	b.lose(t, "1")
	b.with(t, map[string]int{"1": nodes - 4, "2": 4})
	since := time.Now()
	b.begins(t)
	b.event(t, "WrongRevision", "2 nodes, such as ")
	b.metric(t, `everynode_beside_wrong_pods{daemonset="agent",namespace="default"}`)
	if took := time.Since(since); took > known {
		t.Errorf("it took %v until the wrong pods were known", took)
	}
	b.with(t, map[string]int{"1": nodes - 2, "2": 2})
	b.phase(t, "WaitingForApproval")
	b.unchanged(t, before, 4)
	b.run(t, "rollout", "approve", "daemonset/agent").ends(t, 0)
	b.phase(t, "Complete")
	b.images(t, "example.com/agent:2")
	b.stored(t, true)
}

// leaderDies has the other replica go on.
func (b *beside) leaderDies(t *testing.T) {
	b.kubectl(t, "apply", "-f", "agent.yaml")
	b.phase(t, "WaitingForApproval")
	leader := b.leader(t)
	b.kill(t, b.replicas[leader])
	b.lose(t, "2")
	b.with(t, map[string]int{"1": 2, "2": nodes - 2}) // the other one answers
	b.run(t, "rollout", "approve", "daemonset/agent").ends(t, 0)
	b.phase(t, "Complete")
	b.images(t, "example.com/agent:1")
	if b.leader(t) == leader {
		t.Error("one that is dead leads")
	}
}

// leader is which of the replicas holds the lease. Logs may also have lines of those that were killed before, so the
// lease counts.
func (b *beside) leader(t *testing.T) (at int) {
	t.Helper()
	await(t, "a replica leads", func(ctx context.Context) error {
		lease, err := b.client.CoordinationV1().Leases("kube-system").Get(ctx, "everynode-daemonset-controller",
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		holder := ptr.Deref(lease.Spec.HolderIdentity, "")
		at = slices.IndexFunc(b.replicas, func(p *process) bool {
			return strings.Contains(p.tail(1<<20), `identity="`+holder+`"`)
		})
		if at < 0 || holder == "" {
			return fmt.Errorf("the lease is %q's", holder)
		}
		return nil
	})
	return at
}

// unreachable has a bad image rolled back, and cuts everybody off. What comes then is the failed revision.
func (b *beside) unreachable(t *testing.T) {
	b.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:fail")
	b.phase(t, "Halted")
	b.run(t, "rollout", "abort", "daemonset/agent").ends(t, 0)
	b.phase(t, "RolledBack")
	b.images(t, "example.com/agent:1")
	before := b.pods(t)
	heard := b.front.to.Swap(nil)
	b.front.cut()
	b.lose(t, "1")
	b.with(t, map[string]int{"1": nodes - 1, "fail": 1})
	await(t, "the leader says that nobody is asked", func(context.Context) error {
		if !slices.ContainsFunc(b.replicas, func(p *process) bool {
			return strings.Contains(p.tail(1<<20), "the API server does not ask the webhook")
		}) {
			return errors.New("no log says it")
		}
		return nil
	})
	b.unchanged(t, before, 1)
	await(t, "why and doctor say so too", func(context.Context) error {
		why, doctor := b.run(t, "why", "daemonset/agent"), b.run(t, "doctor")
		if !strings.Contains(why.out, "no pod is deleted") || !strings.Contains(doctor.out, "its change stands still") {
			return fmt.Errorf("they say\n%s\n%s", why.out, doctor.out)
		}
		return nil
	})
	b.front.to.Store(heard)
	b.images(t, "example.com/agent:1")
	b.phase(t, "RolledBack")
	b.unchanged(t, before, 1)
}

// retries has the failed revision go to the canary once more.
func (b *beside) retries(t *testing.T) {
	before := b.pods(t)
	b.run(t, "rollout", "retry", "daemonset/agent").ends(t, 0)
	b.with(t, map[string]int{"1": nodes - 2, "fail": 2})
	b.phase(t, "Halted")
	b.unchanged(t, before, 2)
	b.run(t, "rollout", "abort", "daemonset/agent").ends(t, 0)
	b.phase(t, "RolledBack")
	b.images(t, "example.com/agent:1")
	b.unchanged(t, before, 2)
}

// policyGoes deletes the policy while the template is one that failed: nothing may reach a node by that. With a policy
// again it goes on, and when all pods have the template the DaemonSet is given back.
func (b *beside) policyGoes(t *testing.T) {
	before := b.pods(t)
	b.kubectl(t, "delete", "rp/agents")
	b.event(t, "StoredAsBefore", "no policy selects it, and 12 nodes have ")
	b.lose(t, "1")
	b.images(t, "example.com/agent:1")
	b.stored(t, true)
	b.unchanged(t, before, 1)
	b.kubectl(t, "apply", "-f", "policy.yaml")
	b.kubectl(t, "apply", "-f", "agent.yaml")
	b.phase(t, "Complete")
	b.unchanged(t, before, 1)
	before = b.pods(t)
	b.kubectl(t, "delete", "rp/agents")
	b.stored(t, false)
	b.synced(t)
	b.samePods(t, before)
	b.kubectl(t, "apply", "-f", "policy.yaml")
	b.stored(t, true)
	b.phase(t, "Complete")
	b.samePods(t, before)
}

// event waits for one about the DaemonSet.
func (b *beside) event(t *testing.T, reason, says string) {
	t.Helper()
	await(t, "an event "+reason+" says "+says, func(ctx context.Context) error {
		events, err := b.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, says) {
				return nil
			}
		}
		return fmt.Errorf("there are %d events of that reason", len(events.Items))
	})
}

// metric waits until a replica shows it.
func (b *beside) metric(t *testing.T, name string) {
	t.Helper()
	b.shown(t, "\n"+name+" ")
}

// metricsAt reads the metrics that a replica shows.
func metricsAt(ctx context.Context, at string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	return io.ReadAll(answer.Body)
}

// shown waits until a replica's metrics have a text.
func (b *beside) shown(t *testing.T, what string) {
	t.Helper()
	await(t, fmt.Sprintf("there is the metric %q", what), func(ctx context.Context) error {
		for _, at := range b.shows {
			text, err := metricsAt(ctx, at)
			if err != nil || strings.Contains(string(text), what) {
				return err
			}
		}
		return errors.New("nobody shows it")
	})
}

// moves changes where the daemon runs while the policy asks for approvals. It holds at once, so it takes one.
func (b *beside) moves(t *testing.T) {
	before := b.pods(t)
	elsewhere := strings.Replace(agent, "    spec:\n", "    spec:\n      nodeSelector: {topology.kubernetes.io/zone: a}\n", 1)
	b.write("moved.yaml", elsewhere)
	a := b.run(t, "kubectl", "apply", "-f", "moved.yaml").ends(t, 1).
		says(t, "8 nodes would lose the daemon and 0 would get it, at once, and a rollback would not undo it")
	hash := regexp.MustCompile("sha256:[0-9a-f]{64}").FindString(a.errOut)
	b.run(t, "plan", "-f", "moved.yaml").says(t, "it is refused until then: 8 nodes would lose the daemon",
		"everynode rollout approve daemonset/agent -n default --placement", hash)
	for _, edit := range []string{
		`{"spec":{"template":{"spec":{"tolerations":[{"operator":"Exists","effect":"NoSchedule"}]}}}}`,
		`{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{
			"nodeSelectorTerms":[{"matchExpressions":[{"key":"x","operator":"Exists"}]}]}}}}}}}`,
	} {
		b.run(t, "kubectl", "patch", "ds/agent", "--type=merge", "-p", edit).ends(t, 1).says(t, "--placement sha256:")
	}
	b.run(t, "rollout", "approve", "daemonset/agent", "--placement", "sha256:12").ends(t, 1).says(t, "is no placement")
	b.samePods(t, before)
	b.run(t, "rollout", "approve", "daemonset/agent", "--placement", hash).ends(t, 0).says(t, "may be placed by "+hash)
	b.run(t, "kubectl", "patch", "ds/agent", "--type=merge", "-p",
		`{"spec":{"template":{"spec":{"nodeSelector":{"topology.kubernetes.io/zone":"b"}}}}}`).ends(t, 1)
	b.kubectl(t, "apply", "-f", "moved.yaml")
	b.kubectl(t, "apply", "-f", "moved.yaml")
	await(t, "the daemon is in zone a alone", func(context.Context) error {
		if n := len(b.pods(t)); n != nodes/3 {
			return fmt.Errorf("there are %d pods", n)
		}
		return nil
	})
}
