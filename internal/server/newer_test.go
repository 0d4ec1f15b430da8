package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/nodestartup"
	"github.com/everynode/everynode/internal/server/config"
)

// older is a server whose database a newer one writes to.
type older struct {
	t      *testing.T
	server *Server
	client kubernetes.Interface
	own    *everynode.Client
}

func newOlder(t *testing.T, change func(*config.Options)) *older {
	t.Helper()
	s, config := started(t, change)
	own, err := everynode.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &older{t, s, kubernetes.NewForConfigOrDie(config), own}
}

// raw is what is stored of an object of our own.
func (o *older) raw(resource, name string) (key string, value []byte, revision int64) {
	o.t.Helper()
	err := o.server.etcd.Stored().Each(o.t.Context(), "/registry/everynode.io/"+resource+"/",
		func(at string, is []byte, of int64) error {
			if strings.HasSuffix(at, "/"+name) {
				key, value, revision = at, bytes.Clone(is), of
			}
			return nil
		})
	if err != nil || key == "" {
		o.t.Fatalf("%s %s is not stored: %v", resource, name, err)
	}
	return key, value, revision
}

// newer has a newer server write a field into the spec, or the status, of an object.
func (o *older) newer(resource, name, part, field string) {
	o.t.Helper()
	for {
		key, value, revision := o.raw(resource, name)
		var object map[string]any
		if err := json.Unmarshal(value, &object); err != nil {
			o.t.Fatal(err)
		}
		in, _ := object[part].(map[string]any)
		if in == nil {
			in = map[string]any{}
			object[part] = in
		}
		in[field] = map[string]any{"of": 3}
		next, err := json.Marshal(object)
		if err != nil {
			o.t.Fatal(err)
		}
		done, err := o.server.etcd.Stored().Replace(o.t.Context(), key, revision, next)
		if err != nil {
			o.t.Fatal(err)
		}
		if done {
			return
		}
	}
}

// eventually waits until what returns "".
func (o *older) eventually(what func(context.Context) string) {
	o.t.Helper()
	last := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if last = what(o.t.Context()); last == "" {
			return
		}
	}
	o.t.Fatal(last)
}

// set makes the DaemonSet that tests change.
func (o *older) set() {
	o.t.Helper()
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "logs"}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "logs"}}
	ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "a"}}
	_, err := o.client.AppsV1().DaemonSets("default").Create(o.t.Context(), ds, metav1.CreateOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *older) image(image string) {
	o.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image)
	_, err := o.client.AppsV1().DaemonSets("default").Patch(o.t.Context(), "logs", types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
}

// runs waits until so many pods of the image run.
func (o *older) runs(image string, want int) {
	o.t.Helper()
	o.eventually(func(ctx context.Context) string {
		if n := o.pods(ctx, image); n != want {
			return fmt.Sprintf("%d pods are of the image %s, want %d", n, image, want)
		}
		return ""
	})
}

func (o *older) pods(ctx context.Context, image string) (n int) {
	o.t.Helper()
	all, err := o.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	for i := range all.Items {
		p := &all.Items[i]
		if p.Spec.Containers[0].Image == image && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// waits waits until the DaemonSet says of its newest template that nothing begins, and why.
func (o *older) waits(words ...string) {
	o.t.Helper()
	o.eventually(func(ctx context.Context) string {
		ds, err := o.client.AppsV1().DaemonSets("default").Get(ctx, "logs", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if ds.Status.ObservedGeneration != ds.Generation {
			return "the DaemonSet was not seen"
		}
		for _, c := range ds.Status.Conditions {
			all := c.Type == "Progressing"
			for _, w := range words {
				all = all && strings.Contains(c.Reason+": "+c.Message, w)
			}
			if all {
				return ""
			}
		}
		return fmt.Sprintf("it says %+v, want %q", ds.Status.Conditions, words)
	})
}

// told waits until an event says that an object is not followed.
func (o *older) told(kind, field string) {
	o.t.Helper()
	o.eventually(func(ctx context.Context) string {
		all, err := o.client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, e := range all.Items {
			if e.Reason == "NotFollowed" && e.InvolvedObject.Kind == kind && strings.Contains(e.Message, field) {
				return ""
			}
		}
		return "no event tells that the " + kind + " is not followed"
	})
}

// A policy, and a rollout, into which a newer server wrote what this one does not know: nothing begins by them, and it
// is said why. Given up explicitly, the change goes on.
func TestWhatANewerServerWroteIsNotFollowed(t *testing.T) {
	o := newOlder(t, func(o *config.Options) { o.SimulatedNodes = 3 })
	o.set()
	o.runs("a", 3)
	policies := o.own.RolloutPolicies("default")
	_, err := policies.Create(t.Context(), &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.waits("RolloutPolicyComplete")
	o.newer("rolloutpolicies", "p", "spec", "quorum")
	o.told("RolloutPolicy", "spec.quorum")
	o.image("b")
	o.waits("policy p cannot be followed", "spec.quorum")
	if n := o.pods(t.Context(), "a"); n != 3 {
		t.Errorf("%d pods are as they were, want all 3", n)
	}
	p, err := policies.Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || newer.Fields(p) != "spec.quorum" {
		t.Fatalf("a client is told %q: %v", newer.Fields(p), err)
	}
	valid := func(want metav1.ConditionStatus) func(context.Context) string {
		return func(ctx context.Context) string {
			p, err := policies.Get(ctx, "p", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if c := meta.FindStatusCondition(p.Status.Conditions, "Valid"); c == nil || c.Status != want {
				return fmt.Sprintf("its condition Valid is %+v, want %s", c, want)
			}
			return ""
		}
	}
	if why := valid(metav1.ConditionUnknown)(t.Context()); why != "" {
		t.Error(why)
	}
	give := []byte(`{"metadata":{"annotations":{"everynode.io/unknown-fields":"drop"}}}`)
	p, err = policies.Patch(t.Context(), "p", types.MergePatchType, give, metav1.PatchOptions{})
	if err != nil || len(p.Annotations) > 0 {
		t.Fatalf("the fields are not given up: %v: %v", p.Annotations, err)
	}
	if _, value, _ := o.raw("rolloutpolicies", "p"); bytes.Contains(value, []byte(`"quorum":`)) || bytes.Contains(value, []byte(newer.Annotation+`":"`)) {
		t.Errorf("%s is stored", value)
	}
	o.runs("b", 3)
	o.eventually(valid(metav1.ConditionTrue))

	o.waits("RolloutPolicyComplete")
	o.newer("daemonsetrollouts", "logs", "status", "ghosts")
	o.told("DaemonSetRollout", "status.ghosts")
	o.image("c")
	o.waits("its DaemonSetRollout cannot be followed", "status.ghosts")
	if n := o.pods(t.Context(), "b"); n != 3 {
		t.Errorf("%d pods are as they were, want all 3", n)
	}
	if _, value, _ := o.raw("daemonsetrollouts", "logs"); !bytes.Contains(value, []byte("ghosts")) {
		t.Errorf("what the newer server wrote is lost: %s", value)
	}
	_, err = o.own.DaemonSetRollouts("default").Patch(t.Context(), "logs", types.MergePatchType, give, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.runs("c", 3)
}

// A DaemonSetVariant and a NodeStartup in which is what this server does not know give nobody anything.
func TestVariantsAndStartupsOfANewerServer(t *testing.T) {
	o := newOlder(t, func(o *config.Options) { o.SimulatedNodes = 2 })
	ctx := t.Context()
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Name: "large"}}
	v.Spec.DaemonSets = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "none"}}
	_, err := o.own.DaemonSetVariants("default").Create(ctx, v, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.newer("daemonsetvariants", "large", "spec", "zones")
	o.told("DaemonSetVariant", "spec.zones")
	v, err = o.own.DaemonSetVariants("default").Get(ctx, "large", metav1.GetOptions{})
	if err != nil || meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.VariantApplies) {
		t.Errorf("the conditions of the variant are %+v: %v", v.Status.Conditions, err)
	}

	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	s.Spec.Groups = []v1alpha1.StartupGroup{{DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "default", Name: "logs"}}}}
	_, err = o.own.NodeStartups().Create(ctx, s, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	closed := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "closed"}}
	if closed, err = o.client.CoreV1().Nodes().Create(ctx, closed, metav1.CreateOptions{}); err != nil || nodestartup.TaintOf(closed.Spec.Taints) == nil {
		t.Fatalf("the node joins with %v: %v", closed.Spec.Taints, err)
	}
	o.newer("nodestartups", "all", "spec", "retry")
	o.told("NodeStartup", "spec.retry")
	open, err := o.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "open"}}, metav1.CreateOptions{})
	if err != nil || nodestartup.TaintOf(open.Spec.Taints) != nil {
		t.Errorf("a node joins with %v: %v", open.Spec.Taints, err)
	}
	for _, resource := range []string{"daemonsetvariants", "nodestartups"} {
		name, field := "large", "zones"
		if resource == "nodestartups" {
			name, field = "all", "retry"
		}
		if _, value, _ := o.raw(resource, name); !bytes.Contains(value, []byte(field)) {
			t.Errorf("what the newer server wrote is lost: %s", value)
		}
	}
}
