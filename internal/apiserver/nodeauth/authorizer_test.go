package nodeauth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// cluster is pods in memory; it counts how often a node's pods are listed.
type cluster struct {
	mu    sync.Mutex
	pods  []corev1.Pod
	lists int
	err   error
}

func (c *cluster) PodsOnNode(_ context.Context, node string) ([]corev1.Pod, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	var found []corev1.Pod
	for _, pod := range c.pods {
		if pod.Spec.NodeName == node {
			found = append(found, pod)
		}
	}
	return found, c.err
}

func (c *cluster) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pod := range c.pods {
		if pod.Namespace == namespace && pod.Name == name {
			return &pod, c.err
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func pod(node, name string, volumes ...corev1.VolumeSource) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name)},
		Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: "account-of-" + name}}
	for _, source := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: source})
	}
	return p
}

func secretVolume(name string) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}
}

func nodeUser(name string) user.Info {
	return &user.DefaultInfo{Name: "system:node:" + name, Groups: []string{"system:nodes", "system:authenticated"}}
}

// ask reads "verb [group/]resource[/subresource] namespace name [field=value]" with - for nothing.
func ask(who user.Info, text string) authorizer.AttributesRecord {
	words := strings.Split(text, " ")
	for i := range words {
		if words[i] == "-" {
			words[i] = ""
		}
	}
	a := authorizer.AttributesRecord{User: who, Verb: words[0], Namespace: words[2], Name: words[3], ResourceRequest: true}
	parts := strings.Split(words[1], "/")
	if strings.Contains(parts[0], ".") {
		a.APIGroup, parts = parts[0], parts[1:]
	}
	a.Resource = parts[0]
	if len(parts) > 1 {
		a.Subresource = parts[1]
	}
	if len(words) > 4 {
		selector := fields.ParseSelectorOrDie(words[4])
		a.FieldSelectorRequirements = selector.Requirements()
	}
	return a
}

func TestAuthorizer(t *testing.T) {
	mirror := pod("n1", "static", secretVolume("stolen"))
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	all := &cluster{pods: []corev1.Pod{pod("n1", "a", secretVolume("of-n1")), pod("n2", "b", secretVolume("of-n2")), pod("", "c", secretVolume("of-none")), mirror}}
	a := NewAuthorizer(all, clocktesting.NewFakePassiveClock(start))
	n1 := nodeUser("n1")
	cases := []struct {
		who  user.Info
		asks string
		deny bool
	}{
		{n1, "get secrets ns of-n1", false},
		{n1, "watch secrets ns of-n1", false},
		{n1, "get secrets other of-n1", true},
		{n1, "get secrets ns of-n2", true},
		{n1, "get secrets ns of-none", true},
		{n1, "get secrets ns stolen", true}, // a mirror pod opens nothing
		{n1, "list secrets ns -", true},
		{n1, "list secrets - -", true},
		{n1, "get configmaps ns of-n1", true}, // a secret's name is no config map's
		{n1, "create serviceaccounts/token ns account-of-a", false},
		{n1, "create serviceaccounts/token ns account-of-b", true},
		{n1, "get serviceaccounts ns account-of-a", false},
		{n1, "get serviceaccounts ns account-of-b", true},
		{n1, "get pods ns a", false},
		{n1, "get pods ns b", true},
		{n1, "get pods ns c", true},
		{n1, "get pods ns gone", false},
		{n1, "list pods - - spec.nodeName=n1", false},
		{n1, "watch pods - - spec.nodeName=n1,status.phase=Running", false},
		{n1, "list pods - - spec.nodeName=n2", true},
		{n1, "list pods - - spec.nodeName!=n1", true},
		{n1, "list pods - -", true},
		{n1, "patch pods/status ns a", false}, // the Restriction looks at it
		{n1, "patch nodes/status - n1", false},
		{n1, "patch nodes/status - n2", true},
		{n1, "update nodes - n2", true},
		{n1, "delete nodes - n2", true},
		{n1, "deletecollection nodes - -", true},
		{n1, "list nodes - -", false},
		{n1, "create nodes - -", false},
		{n1, "update coordination.k8s.io/leases kube-node-lease n1", false},
		{n1, "create coordination.k8s.io/leases kube-node-lease -", false},
		{n1, "update coordination.k8s.io/leases kube-node-lease n2", true},
		{n1, "list coordination.k8s.io/leases kube-node-lease -", true},
		{n1, "update coordination.k8s.io/leases kube-system n1", true},
		{n1, "get storage.k8s.io/csinodes - n1", false},
		{n1, "create storage.k8s.io/csinodes - -", false},
		{n1, "get storage.k8s.io/csinodes - n2", true},
		{n1, "update storage.k8s.io/csinodes - n2", true},
		{n1, "list storage.k8s.io/csinodes - -", true},
		{n1, "list storage.k8s.io/csidrivers - -", false},
		{n1, "list services - -", false},
		{nodeUser(""), "list services - -", true},
		{&user.DefaultInfo{Name: "jane", Groups: []string{"system:nodes"}}, "list services - -", true},
		{&user.DefaultInfo{Name: "system:node:n1"}, "get secrets ns of-n2", false}, // not in the group: the roles decide
		{&user.DefaultInfo{Name: "jane"}, "list secrets - -", false},
	}
	for _, c := range cases {
		decision, reason, err := a.Authorize(t.Context(), ask(c.who, c.asks))
		if err != nil || (decision == authorizer.DecisionDeny) != c.deny || (reason != "") != c.deny {
			t.Errorf("%s %s: %s %q %v, want denied %v", c.who.GetName(), c.asks, decision, reason, err, c.deny)
		}
		if decision == authorizer.DecisionAllow {
			t.Errorf("%s %s: allowed; only the roles allow", c.who.GetName(), c.asks)
		}
	}
}

func TestNewPodOpensItsSecretAtOnceAndDeletedOneClosesIt(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(start)
	all := &cluster{pods: []corev1.Pod{pod("n1", "a", secretVolume("s1"))}}
	r := newRelations(all, clock)
	expect := func(name string, want bool, lists int) {
		t.Helper()
		got, err := r.related(t.Context(), "n1", reference{secrets, "ns", name})
		if err != nil || got != want || all.lists != lists {
			t.Errorf("%s: %v, %v after %d lists; want %v after %d", name, got, err, all.lists, want, lists)
		}
	}
	expect("s1", true, 1)
	expect("s1", true, 1) // kept
	expect("s2", false, 2)
	all.pods = append(all.pods, pod("n1", "b", secretVolume("s2")))
	expect("s2", true, 3)
	all.pods = nil
	clock.SetTime(start.Add(keepFor - time.Second))
	expect("s2", true, 3)
	clock.SetTime(start.Add(keepFor))
	expect("s2", false, 4)
}

func TestLookupThatFailsDenies(t *testing.T) {
	all := &cluster{pods: []corev1.Pod{pod("n1", "a")}, err: errors.New("disk")}
	a := NewAuthorizer(all, clocktesting.NewFakePassiveClock(start))
	for _, text := range []string{"get secrets ns s", "get pods ns a"} {
		decision, _, err := a.Authorize(t.Context(), ask(nodeUser("n1"), text))
		if decision != authorizer.DecisionDeny || err == nil {
			t.Errorf("%s: %s, %v; want a denial with an error", text, decision, err)
		}
	}
}

func TestListsOfGoneNodesAreForgotten(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(start)
	r := newRelations(&cluster{}, clock)
	for i := range 3 * sweepAbove {
		clock.SetTime(start.Add(time.Duration(i) * time.Second))
		if _, err := r.related(t.Context(), fmt.Sprint("n", i), reference{secrets, "ns", "s"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.nodes) > sweepAbove {
		t.Errorf("%d lists are kept, want at most %d", len(r.nodes), sweepAbove)
	}
}

func TestReferences(t *testing.T) {
	env := func(secret, configMap string) []corev1.EnvVar {
		return []corev1.EnvVar{
			{Name: "plain", Value: "x"},
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}},
			{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}}},
			{ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{}}},
		}
	}
	local := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	p := pod("n1", "a", secretVolume("s1"), corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c1")}},
		corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: local("s2")}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("c2")}},
			{DownwardAPI: &corev1.DownwardAPIProjection{}},
		}}},
		corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: new(local("s3"))}},
		corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}})
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{local("s4")}
	p.Spec.InitContainers = []corev1.Container{{Env: env("s5", "c5")}}
	p.Spec.Containers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("s6")}},
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("c6")}},
	}}}
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: env("s7", "c7")}}}
	got := referencesOf([]corev1.Pod{p})
	want := []reference{{serviceAccounts, "ns", "account-of-a"}}
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7} {
		want = append(want, reference{secrets, "ns", fmt.Sprint("s", n)})
	}
	for _, n := range []int{1, 2, 5, 6, 7} {
		want = append(want, reference{configMaps, "ns", fmt.Sprint("c", n)})
	}
	for _, ref := range want {
		if !got.has(ref) {
			t.Errorf("%v is missing", ref)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d references, want %d: %v", len(got), len(want), got)
	}
}
