package server

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/apiserver/bootstrap"
	"github.com/everynode/everynode/internal/scheduler"
	"github.com/everynode/everynode/internal/server/writers"
)

// TestBindingForAnotherNodeIsRefused: by both ways to write, in a dry run, and where a pod is created with its node. A
// binding that names no UID is done, whether its node exists or not.
func TestBindingForAnotherNodeIsRefused(t *testing.T) {
	t.Parallel()
	client, http, door := ways(t)
	ctx := t.Context()
	before, err := client.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Nodes().Delete(ctx, "node-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodeOf := func(namespace, name string) string {
		t.Helper()
		p, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p.Spec.NodeName
	}
	for _, w := range []way{http, door} {
		p, err := client.CoreV1().Pods(w.namespace).Create(ctx, testPod(w.namespace, "p"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for what, chosen := range map[string]scheduler.Chosen{
			"is another one": {Name: "node-1", UID: before.UID}, "does not exist": {Name: "none", UID: before.UID},
		} {
			err := w.sched.Bind(ctx, p, chosen)
			if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: a binding to a node that %s: %v", w.namespace, what, err)
			}
		}
		if on := nodeOf(w.namespace, "p"); on != "" {
			t.Errorf("%s: the pod is on %q", w.namespace, on)
		}
		dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		for uid, refused := range map[types.UID]bool{before.UID: true, again.UID: false} {
			err := client.CoreV1().Pods(w.namespace).Bind(ctx, scheduler.BindingOf(p, scheduler.Chosen{Name: "node-1", UID: uid}), dry)
			if apierrors.IsConflict(err) != refused || (err != nil) != refused {
				t.Errorf("a dry run for the UID %s: %v", uid, err)
			}
		}
		if err := w.sched.Bind(ctx, p, scheduler.Chosen{Name: "node-1", UID: again.UID}); err != nil {
			t.Errorf("%s: a binding to the very node: %v", w.namespace, err)
		}
		if on := nodeOf(w.namespace, "p"); on != "node-1" {
			t.Errorf("%s: the pod is on %q", w.namespace, on)
		}
		other, err := client.CoreV1().Pods(w.namespace).Create(ctx, testPod(w.namespace, "any"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.sched.Bind(ctx, other, scheduler.Chosen{Name: "none"}); err != nil {
			t.Errorf("%s: a binding without a UID: %v", w.namespace, err)
		}
	}

	binder := writers.Through(door.door.As(bootstrap.SchedulerAccount()))
	door.as(bootstrap.ControllerAccount("daemon-set-controller"))
	for name, c := range map[string]struct {
		uid        types.UID
		node, told string
	}{"stale": {before.UID, "", "refused"}, "right": {again.UID, "node-1", "stored right"}} {
		room := &roomForAll{uid: c.uid}
		if _, err := door.placedBy(t, room, binder).CreatePod(ctx, forNode1(door.namespace, name)); err != nil {
			t.Fatal(err)
		}
		if on := nodeOf(door.namespace, name); on != c.node {
			t.Errorf("the pod %s is created on %q", name, on)
		}
		if len(room.told) != 1 || room.told[0] != c.told {
			t.Errorf("of the pod %s the scheduler is told %q", name, room.told)
		}
	}
}
