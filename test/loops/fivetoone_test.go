package loops

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/everynode/everynode/internal/objects/pod"
	"github.com/everynode/everynode/internal/testenv"
)

// counting counts daemons by node as they come and go: the most nodes at once that were without one, once each had one,
// and the nodes that had two.
type counting struct {
	on        map[string]map[types.UID]bool
	lacking   int
	twice     map[string]bool
	done, end chan struct{}
}

func (f *fleet) counting(selector string) *counting {
	f.t.Helper()
	pods, err := f.Client.CoreV1().Pods("default").Watch(f.t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		f.t.Fatal(err)
	}
	c := &counting{on: map[string]map[types.UID]bool{}, twice: map[string]bool{}, done: make(chan struct{}), end: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer pods.Stop()
		for {
			select {
			case <-c.end:
				return
			case e := <-pods.ResultChan():
				if p, is := e.Object.(*corev1.Pod); is {
					c.see(p, e.Type == watch.Deleted, int(f.nodes))
				}
			}
		}
	}()
	return c
}

func (c *counting) see(p *corev1.Pod, gone bool, nodes int) {
	node := pod.TargetNode(p)
	if c.on[node] == nil {
		c.on[node] = map[types.UID]bool{}
	}
	delete(c.on[node], p.UID)
	if !gone && pod.IsReady(p) && p.DeletionTimestamp == nil {
		c.on[node][p.UID] = true
	}
	lacking := 0
	for _, has := range c.on {
		if len(has) == 0 {
			lacking++
		}
	}
	if len(c.on[node]) > 1 {
		c.twice[node] = true
	}
	if len(c.on) == nodes {
		c.lacking = max(c.lacking, lacking)
	}
}

// Five DaemonSets become one as the guide says: they are deleted without their pods, these get the labels of the one, and it
// takes them over. No node has two daemons, and none is without beyond maxUnavailable.
func TestFiveDaemonSetsBecomeOne(t *testing.T) {
	t.Parallel()
	f := &fleet{testenv.Start(t, testenv.SimulatedNodes(5)), t, 5}
	ctx, sets := t.Context(), f.Client.AppsV1().DaemonSets("default")
	one := intstr.FromInt32(1)
	set := func(name, node string, labels map[string]string) {
		t.Helper()
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}}}}}
		if node != "" {
			ds.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		}
		if _, err := sets.Create(ctx, ds, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ready := func(name string, nodes int32) {
		t.Helper()
		f.Eventually(name+" is everywhere", func(ctx context.Context) error {
			ds, err := sets.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s := ds.Status; s.ObservedGeneration != ds.Generation || s.NumberAvailable != nodes || s.UpdatedNumberScheduled != nodes {
				return fmt.Errorf("the status is %+v", s)
			}
			return nil
		})
	}
	for i := range 5 {
		// Of some the labels are already those of the one, of others not.
		app := "logs"
		if i > 2 {
			app = fmt.Sprint("logs-", i)
		}
		set(fmt.Sprint("logs-", i), fmt.Sprintf("sim-%04d", i+1), map[string]string{"app": app, "class": fmt.Sprint(i), "all": "logs"})
	}
	for i := range 5 {
		ready(fmt.Sprint("logs-", i), 1)
	}
	c := f.counting("all=logs")
	orphan := metav1.DeletePropagationOrphan
	for i := range 5 {
		if err := sets.Delete(ctx, fmt.Sprint("logs-", i), metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
			t.Fatal(err)
		}
	}
	f.Eventually("the DaemonSets are gone", func(ctx context.Context) error {
		all, err := sets.List(ctx, metav1.ListOptions{})
		if err == nil && len(all.Items) > 0 {
			err = fmt.Errorf("%d are there", len(all.Items))
		}
		return err
	})
	pods, err := f.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "all=logs"})
	if err != nil || len(pods.Items) != 5 {
		t.Fatalf("%d pods run on: %v", len(pods.Items), err)
	}
	for _, p := range pods.Items {
		_, err := f.Client.CoreV1().Pods("default").Patch(ctx, p.Name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"app":"logs"}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	set("logs", "", map[string]string{"app": "logs", "all": "logs"})
	ready("logs", 5)
	close(c.end)
	<-c.done
	if c.lacking > 1 || len(c.twice) > 0 || len(c.on) != 5 {
		t.Errorf("%d nodes were without a daemon at once, %v had two, of %d", c.lacking, c.twice, len(c.on))
	}
	if c.lacking == 0 {
		t.Error("no pod was replaced, though the template is another")
	}
}
