package foreign

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/testenv/eventually"
)

// contentInPlace is withContent, and nothing goes on behind the canary without somebody's word.
var contentInPlace = strings.Replace(withContent, "soak: 5s}", "soak: 5s, approval: Manual}", 1)

// TestContentInPlaceOfKubernetes has configuration travel like code where our controller makes the pods in place of
// kube-controller-manager's, and has either take over from the other in the middle of a change.
func TestContentInPlaceOfKubernetes(t *testing.T) {
	b := &beside{cluster: start(t, nodes)}
	b.zones(t)
	for name, text := range map[string]string{"settings": settings("info"), "agent": reader, "policy": contentInPlace} {
		b.write(name+".yaml", text)
	}
	b.kubectl(t, "create", "secret", "generic", "token", "--from-literal=token="+tokenValue)
	b.kubectl(t, "apply", "-f", "settings.yaml", "-f", "agent.yaml")
	b.settled(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"content is turned on", b.turnsOnInPlace},
		{"a bad key is back after its canary", b.badKeyInPlace},
		{"a good one waits at its canary", b.goodKeyWaits},
		{"kube-controller-manager takes over in the middle, and touches nothing", b.givenToKubernetes},
		{"our controller takes over in the middle, and touches nothing", b.takenBack},
		{"the good one goes on", b.goodKeyGoesOn},
		{"copies that nobody needs go", b.onlyNeededCopies},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	b.refusals(account, 100)
	b.logsHide(t, b.controller)
}

// turnsOnInPlace has our controller take over from kube-controller-manager, with a policy of which content is a part.
func (b *beside) turnsOnInPlace(t *testing.T) {
	before := b.pods(t)
	b.kinds(t)
	b.kubectl(t, "apply", "-f", b.example(t, "controller-rbac.yaml"))
	for _, role := range []string{"content", "content-secrets"} {
		b.kubectl(t, "-n", "default", "create", "rolebinding", role, "--clusterrole=everynode:"+role,
			"--serviceaccount=kube-system:everynode-daemonset-controller")
	}
	b.startManager("*,-daemonset-controller")
	b.control(t)
	b.kubectl(t, "apply", "-f", "policy.yaml")
	b.phase(t, "WaitingForApproval")
	b.reads(t, map[string]int{"info": 1, "the author's": nodes - 1})
	b.unchanged(t, before, 1)
	b.approve(t)
	b.reads(t, map[string]int{"info": nodes})
}

// approve lets the change go on to its end.
func (b *beside) approve(t *testing.T) {
	t.Helper()
	b.run(t, "rollout", "approve", "daemonset/agent").ends(t, 0).says(t, "is approved")
	b.run(t, "rollout", "status", "daemonset/agent", "--timeout=2m").ends(t, 0).says(t, "Complete")
}

// badKeyInPlace has a level that there is not. The ConfigMap stays as its author wrote it.
func (b *beside) badKeyInPlace(t *testing.T) {
	before := b.pods(t)
	b.kubectl(t, "apply", "-f", b.write("bad.yaml", settings("verbos")))
	written := b.settingsNow(t)
	b.phase(t, "RolledBack")
	b.reads(t, map[string]int{"info": nodes})
	b.unchanged(t, before, 1)
	if now := b.settingsNow(t); now != written || !strings.Contains(now, `"level":"verbos"`) {
		t.Errorf("the author's ConfigMap is\n%s\nwritten was\n%s", now, written)
	}
}

// settingsNow is the ConfigMap as the API stores it, to its version.
func (b *beside) settingsNow(t *testing.T) string {
	t.Helper()
	m, err := b.client.CoreV1().ConfigMaps("default").Get(t.Context(), "settings", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// goodKeyWaits leaves a change of content in its middle: the canary has it, and all others have what was before.
func (b *beside) goodKeyWaits(t *testing.T) {
	before := b.pods(t)
	b.kubectl(t, "apply", "-f", b.write("good.yaml", settings("debug")))
	b.phase(t, "WaitingForApproval")
	b.reads(t, map[string]int{"debug": 1, "info": nodes - 1})
	b.unchanged(t, before, 1)
}

// standing is what another controller might touch of the pods and the revisions.
func (b *beside) standing(t *testing.T) string {
	t.Helper()
	var out []string
	for _, p := range b.list(t) {
		restarts := int32(0)
		for _, s := range p.Status.ContainerStatuses {
			restarts += s.RestartCount
		}
		out = append(out, fmt.Sprintf("pod %s %s on %s, of %s: %v %v, deleted %v, %d restarts", p.Name, p.UID,
			p.Spec.NodeName, metav1.GetControllerOf(&p).UID, p.Labels, p.Annotations, p.DeletionTimestamp, restarts))
	}
	revisions, err := b.client.AppsV1().ControllerRevisions("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range revisions.Items {
		out = append(out, fmt.Sprintf("revision %s %s: %d %v %s", r.Name, r.UID, r.Revision, r.Labels, r.Data.Raw))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// copies are the names of the copies by kind.
func (b *beside) copies(t *testing.T) map[string]string {
	t.Helper()
	of := metav1.ListOptions{LabelSelector: content.Label}
	maps, err := b.client.CoreV1().ConfigMaps("default").List(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := b.client.CoreV1().Secrets("default").List(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range maps.Items {
		out["ConfigMaps"] += m.Name + " "
	}
	for _, s := range secrets.Items {
		out["Secrets"] += s.Name + " "
	}
	return out
}

// looked has whoever is the DaemonSet controller look at everything again, twice: the second time it knows what it has
// done the first time.
func (b *beside) looked(t *testing.T) {
	t.Helper()
	for _, seconds := range []string{"1", "0"} {
		b.kubectl(t, "patch", "ds/agent", "--type=merge", "-p", `{"spec":{"minReadySeconds":`+seconds+`}}`)
		b.synced(t)
	}
}

// givenToKubernetes stops our controller in the middle, and starts kube-controller-manager's.
func (b *beside) givenToKubernetes(t *testing.T) {
	b.looked(t)
	before := b.standing(t)
	b.controller.stop()
	b.startManager("*")
	b.looked(t)
	b.touched(t, before)
	b.reads(t, map[string]int{"debug": 1, "info": nodes - 1})
}

// touched compares what there is with what there was.
func (b *beside) touched(t *testing.T, before string) {
	t.Helper()
	if now := b.standing(t); now != before {
		t.Errorf("there are\n%s\nbefore there were\n%s", now, before)
	}
}

// takenBack is the other way round.
func (b *beside) takenBack(t *testing.T) {
	before := b.standing(t)
	b.startManager("*,-daemonset-controller")
	b.control(t)
	b.looked(t)
	b.phase(t, "WaitingForApproval")
	b.touched(t, before)
	b.reads(t, map[string]int{"debug": 1, "info": nodes - 1})
}

// goodKeyGoesOn approves. The canary, which has it, keeps its pod.
func (b *beside) goodKeyGoesOn(t *testing.T) {
	before := b.pods(t)
	b.approve(t)
	b.reads(t, map[string]int{"debug": nodes})
	b.unchanged(t, before, nodes-1)
}

// onlyNeededCopies waits until the copies that are left are those that pods read. What was stable a moment ago, and what
// failed, are needed no more.
func (b *beside) onlyNeededCopies(t *testing.T) {
	eventually.Nil(t, patience+2*time.Minute, "the copies are those that pods read", func(context.Context) error {
		needed := map[string]map[string]bool{"ConfigMaps": {}, "Secrets": {}}
		for _, p := range b.list(t) {
			for _, r := range content.Refs(&p.Spec) {
				if r.Name != "kube-root-ca.crt" {
					needed[string(r.Kind)+"s"][r.Name] = true
				}
			}
		}
		have := b.copies(t)
		for kind, of := range needed {
			list := strings.Fields(have[kind])
			list = slices.DeleteFunc(list, func(name string) bool { // the list of a content, and what Secrets are named with
				return strings.HasPrefix(name, "agent-") || name == content.KeyName
			})
			if !slices.Equal(list, slices.Sorted(maps.Keys(of))) {
				return fmt.Errorf("%s are %v, needed are %v", kind, list, of)
			}
		}
		if len(strings.Fields(have["ConfigMaps"])) != 2 {
			return fmt.Errorf("beside the list of one content there are %s", have["ConfigMaps"])
		}
		return nil
	})
	var is corev1.ConfigMap
	err := json.Unmarshal([]byte(b.settingsNow(t)), &is)
	if err != nil || fmt.Sprint(is.Data) != "map[level:debug]" || is.Immutable != nil ||
		len(is.Labels)+len(is.OwnerReferences) > 0 {
		t.Errorf("the author's object is %+v (%v)", is, err)
	}
}
