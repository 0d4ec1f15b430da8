package foreign

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/registration"
)

// TestLeavingKubernetes gives DaemonSets back to kube-controller-manager in every way there is, and counts the pods that
// change by it.
func TestLeavingKubernetes(t *testing.T) {
	b := &beside{cluster: start(t, nodes)}
	b.front = newFront(t)
	b.prepares(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"a webhook that never answered", b.leavesUnheard},
		{"a DaemonSet that is complete", b.leavesComplete},
		{"one with a bad image is refused, and stays OnDelete by choice", b.keepsOnDelete},
		{"one with a bad image goes on by choice of who may", b.letsRoll},
		{"nobody answers, and writes are refused", b.leavesDead},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	b.refusals(besideAccount, 50)
}

// leave runs the command as an administrator.
func (b *beside) leave(t *testing.T, flags ...string) answer {
	t.Helper()
	return b.run(t, append([]string{"controller", "--leave", "--kubeconfig=" + b.kubeconfig}, flags...)...)
}

// stays has those that run take over again, as if the time for leaving was over.
func (b *beside) stays(t *testing.T) {
	t.Helper()
	b.kubectl(t, "-n", "kube-system", "patch", "secret", "everynode-webhook", "--type=json", "-p",
		`[{"op":"remove","path":"/data/leaving"}]`)
}

// set is the DaemonSet.
func (b *beside) set(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	ds, err := b.client.AppsV1().DaemonSets("default").Get(t.Context(), "agent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// written is all of the DaemonSet that its author wrote, as JSON.
func (b *beside) written(t *testing.T) string {
	t.Helper()
	ds := b.set(t)
	annotations := maps.Clone(ds.Annotations)
	delete(annotations, appsv1.DeprecatedTemplateGeneration) // the API server counts there, as in the generation
	raw, err := json.Marshal([]any{ds.Labels, annotations, ds.Finalizers, ds.OwnerReferences, ds.Spec})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// unregistered wants nothing in the API server to ask or refuse any more.
func (b *beside) unregistered(t *testing.T) {
	t.Helper()
	api := b.client.AdmissionregistrationV1()
	_, err := api.MutatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the webhook is still registered (%v)", err)
	}
	policies, err := api.ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bindings, err := api.ValidatingAdmissionPolicyBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range policies.Items {
		if strings.HasPrefix(p.Name, registration.Name) {
			t.Errorf("the policy %s is left", p.Name)
		}
	}
	for _, p := range bindings.Items {
		if strings.HasPrefix(p.Name, registration.Name) {
			t.Errorf("the binding %s is left", p.Name)
		}
	}
}

// synced waits until kube-controller-manager has seen what is stored.
func (b *beside) synced(t *testing.T) {
	t.Helper()
	await(t, "kube-controller-manager has seen the DaemonSet", func(context.Context) error {
		ds := b.set(t)
		if ds.Status.ObservedGeneration != ds.Generation {
			return fmt.Errorf("it has seen generation %d of %d", ds.Status.ObservedGeneration, ds.Generation)
		}
		return nil
	})
}

// isGivenBack wants the DaemonSet to be what it was, and every pod the same.
func (b *beside) isGivenBack(t *testing.T, written string, pods map[string]string) {
	t.Helper()
	b.unregistered(t)
	b.synced(t)
	b.samePods(t, pods)
	if now := b.written(t); now != written {
		t.Errorf("the DaemonSet is\n%s\nand was\n%s", now, written)
	}
	for _, c := range b.set(t).Status.Conditions {
		t.Errorf("it keeps the condition %s", c.Type)
	}
	for _, m := range b.set(t).ManagedFields {
		if strings.HasPrefix(m.Manager, "everynode") {
			t.Errorf("%s owns %s", m.Manager, m.FieldsV1)
		}
	}
	list, err := b.client.AppsV1().ControllerRevisions("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.Items {
		if r.Annotations[admit.UpdateStrategy] != "" {
			t.Errorf("the revision %s keeps the annotation", r.Name)
		}
	}
	b.run(t, "kubectl", "diff", "-f", "agent.yaml").ends(t, 0)
}

// leavesUnheard has controllers that nobody reaches. They store nothing, and leaving takes away what is in the way.
func (b *beside) leavesUnheard(t *testing.T) {
	written, pods := b.written(t), b.pods(t)
	b.begins(t)
	heard := b.front.to.Swap(nil)
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", policy))
	await(t, "an event says that nobody is asked", func(ctx context.Context) error {
		events, err := b.client.CoreV1().Events("default").List(ctx,
			metav1.ListOptions{FieldSelector: "reason=StoredAsBefore"})
		if err == nil && len(events.Items) == 0 {
			err = fmt.Errorf("there is none")
		}
		return err
	})
	b.leave(t).ends(t, 0).says(t, "0 DaemonSets are given back, and 0 stay OnDelete")
	b.isGivenBack(t, written, pods)
	b.front.to.Store(heard)
}

// leavesComplete gives a DaemonSet back whose pods are all of its template; one that was changed meanwhile, too.
func (b *beside) leavesComplete(t *testing.T) {
	written, pods := b.written(t), b.pods(t)
	b.stays(t)
	b.stored(t, true)
	b.phase(t, "Complete")
	b.leave(t).ends(t, 0).says(t, "default/agent is as its author wrote it; no pod changes",
		"1 DaemonSets are given back, and 0 stay OnDelete")
	b.isGivenBack(t, written, pods)
	// What runs takes nothing over for a while, whatever is written.
	b.kubectl(t, "label", "ds/agent", "seen=yes")
	b.kubectl(t, "label", "ds/agent", "seen-")
	b.isGivenBack(t, written, pods)

	b.stays(t)
	b.stored(t, true)
	b.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:2")
	b.phase(t, "WaitingForApproval")
	b.run(t, "rollout", "approve", "daemonset/agent").ends(t, 0)
	b.phase(t, "Complete")
	b.images(t, "example.com/agent:2")
	b.write("agent.yaml", strings.Replace(agent, "agent:1", "agent:2", 1))
	b.kubectl(t, "apply", "-f", "agent.yaml")
	pods = b.pods(t)
	b.leave(t).ends(t, 0).says(t, "no pod changes")
	b.unregistered(t)
	b.synced(t)
	b.samePods(t, pods)
	b.isGivenBack(t, b.written(t), pods)
}

// keepsOnDelete rolls a bad image back. Its manifest is the failed one then, and would go to every node.
func (b *beside) keepsOnDelete(t *testing.T) {
	pods := b.pods(t)
	b.stays(t)
	b.stored(t, true)
	b.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:fail")
	b.phase(t, "Halted")
	b.refuses(t, "default/agent: 10 nodes have ")
	b.run(t, "rollout", "abort", "daemonset/agent").ends(t, 0)
	b.phase(t, "RolledBack")
	b.unchanged(t, pods, 2)
	b.images(t, "example.com/agent:2")
	pods = b.pods(t)
	b.refuses(t, "default/agent: 12 nodes have ")

	b.leave(t, "--keep-on-delete=default/agent").ends(t, 0).says(t, "default/agent stays OnDelete; 12 nodes keep ",
		"0 DaemonSets are given back, and 1 stay OnDelete")
	b.unregistered(t)
	b.kubectl(t, "label", "ds/agent", "seen=yes", "--overwrite")
	b.synced(t)
	b.samePods(t, pods)
	b.stored(t, true)
}

// refuses wants leaving to be refused, and nothing to change.
func (b *beside) refuses(t *testing.T, says string) {
	t.Helper()
	pods, written := b.pods(t), b.written(t)
	b.leave(t).ends(t, 1).says(t, says, "at once, without waves; wait until the change has ended, or choose otherwise",
		"nothing was given back, and nothing changed")
	_, err := b.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), registration.Name,
		metav1.GetOptions{})
	if err != nil {
		t.Errorf("the webhook is not there any more: %v", err)
	}
	secret, err := b.client.CoreV1().Secrets("kube-system").Get(t.Context(), "everynode-webhook", metav1.GetOptions{})
	if err != nil || secret.Data["leaving"] != nil {
		t.Errorf("the Secret holds %d bytes of a mark (%v)", len(secret.Data["leaving"]), err)
	}
	b.synced(t)
	b.samePods(t, pods)
	if now := b.written(t); now != written {
		t.Errorf("the DaemonSet is\n%s\nand was\n%s", now, written)
	}
}

// leaver may do all that leaving takes, but not approve rollouts.
const leaver = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: leaver}
rules:
- {apiGroups: [apps], resources: [daemonsets, controllerrevisions], verbs: [get, list, patch]}
- {apiGroups: [""], resources: [pods, secrets], verbs: [get, list, patch]}
- {apiGroups: [admissionregistration.k8s.io], resources: ["*"], verbs: [delete]}
`

// letsRoll has kube-controller-manager roll the failed template out. It stops at its own limit.
func (b *beside) letsRoll(t *testing.T) {
	b.stays(t)
	b.phase(t, "RolledBack")
	b.kubectl(t, "apply", "-f", b.write("leaver.yaml", leaver))
	mover := b.caller(t, "mover", "")
	b.kubectl(t, "create", "clusterrolebinding", "mover", "--clusterrole=leaver", "--serviceaccount=default:mover")
	pods, written := b.pods(t), b.written(t)
	b.as(t, mover, b.everynode, "controller", "--leave", "--kubeconfig="+mover, "--let-it-roll=default/agent").ends(t, 1).
		says(t, "default/agent: 12 nodes have ", "that is for those who may approve rollouts")
	b.synced(t)
	b.samePods(t, pods)
	if now := b.written(t); now != written {
		t.Errorf("the DaemonSet is\n%s\nand was\n%s", now, written)
	}
	b.leave(t, "--let-it-roll=default/agent").ends(t, 0).says(t, "default/agent goes on: 12 nodes get ",
		"1 DaemonSets are given back, and 0 stay OnDelete")
	b.with(t, map[string]int{"2": nodes - 3, "fail": 3})
	b.synced(t)
	b.unchanged(t, pods, 3)
	b.unregistered(t)
	b.kubectl(t, "apply", "-f", "agent.yaml")
	b.settled(t)
	b.images(t, "example.com/agent:2")
	b.unchanged(t, pods, 3)
}

// leavesDead leaves when all replicas are dead, and the API server refuses what nobody answers for.
func (b *beside) leavesDead(t *testing.T) {
	for _, p := range b.replicas {
		p.stop()
	}
	written, pods := b.written(t), b.pods(t)
	b.stays(t)
	b.begins(t, "--webhook-fail")
	b.stored(t, true)
	for _, p := range b.replicas {
		_ = p.cmd.Process.Kill()
		p.stop()
	}
	b.run(t, "kubectl", "label", "ds/agent", "seen=no", "--overwrite").ends(t, 1).says(t, "failed calling webhook")
	b.leave(t).ends(t, 0).says(t, "1 DaemonSets are given back, and 0 stay OnDelete")
	b.isGivenBack(t, written, pods)
}
