package loops

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// setGated pods are ready when the test says that they are well.
func setGated(s *appsv1.StatefulSet) {
	s.Spec.Template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/well"}}
}

// say tells of a pod whether it is well.
func (c statefulSetCluster) say(ctx context.Context, pod string, well corev1.ConditionStatus) (*corev1.Pod, error) {
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"example.com/well","status":%q}]}}`, well)
	return c.Client.CoreV1().Pods(c.namespace).Patch(ctx, pod, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
}

// well says of a pod whether it is, as soon as it is there, and waits until its readiness follows.
func (c statefulSetCluster) well(pod string, is corev1.ConditionStatus) {
	c.t.Helper()
	c.Eventually(fmt.Sprintf("%s is ready: %s", pod, is), func(ctx context.Context) error {
		p, err := c.say(ctx, pod, is)
		if err != nil {
			return err
		}
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == is {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", p.Status.Conditions)
	})
}

// shows waits until the status has counted that many ready, and checks that the pods are these then, whatever state
// they are in. The controller writes a status after it has done about pods what it wants, so what it should not do
// would be seen.
func (c statefulSetCluster) shows(what, want string, ready int32) {
	c.t.Helper()
	c.Eventually(what, func(ctx context.Context) error {
		set, err := c.Client.AppsV1().StatefulSets(c.namespace).Get(ctx, "db", metav1.GetOptions{})
		if err != nil {
			return err
		}
		got, err := c.pods(ctx)
		if err != nil {
			return err
		}
		if got != want || set.Status.ReadyReplicas != ready || set.Status.ObservedGeneration != set.Generation {
			return fmt.Errorf("the pods are %s; the status is %+v", got, set.Status)
		}
		return nil
	})
}

// follow notes in which order pods come and go. What it returns waits until that many did, and says in which order.
func (c statefulSetCluster) follow() func(many int) string {
	c.t.Helper()
	w, err := c.Client.CoreV1().Pods(c.namespace).Watch(c.t.Context(), metav1.ListOptions{LabelSelector: "app=db"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(w.Stop)
	return func(many int) (order string) {
		c.t.Helper()
		for n := 0; n < many; {
			event, open := <-w.ResultChan()
			if !open {
				c.t.Fatalf("the watch ended after %s", order)
			}
			p, _ := event.Object.(*corev1.Pod)
			switch event.Type {
			case watch.Added:
				order += "+" + p.Name + " "
				n++
			case watch.Deleted:
				order += "-" + p.Name + " "
				n++
			}
		}
		return order
	}
}

// halted: one after the other, and nothing goes on, up or down, while another pod is unwell.
func halted(c statefulSetCluster) {
	order := c.follow()
	c.create(3, setGated)
	c.shows("only the first is made", "db-0/v1 ", 0)
	c.well("db-0", corev1.ConditionTrue)
	c.shows("then the second", "db-0/v1 db-1/v1 ", 1)
	c.well("db-0", corev1.ConditionFalse)
	c.shows("the first is unwell", "db-0/v1 db-1/v1 ", 0)
	c.well("db-1", corev1.ConditionTrue)
	c.shows("the third waits for the first", "db-0/v1 db-1/v1 ", 1)
	c.well("db-0", corev1.ConditionTrue)
	c.shows("then it is made", "db-0/v1 db-1/v1 db-2/v1 ", 2)
	for _, pod := range []string{"db-0", "db-1"} {
		c.well(pod, corev1.ConditionFalse)
	}
	c.shows("all are unwell", "db-0/v1 db-1/v1 db-2/v1 ", 0)
	c.patch(`{"spec":{"replicas":0}}`)
	c.shows("none goes while those before it are unwell", "db-0/v1 db-1/v1 db-2/v1 ", 0)
	c.well("db-0", corev1.ConditionTrue)
	c.shows("nor while one of them is", "db-0/v1 db-1/v1 db-2/v1 ", 1)
	if _, err := c.say(c.t.Context(), "db-1", corev1.ConditionTrue); err != nil {
		c.t.Fatal(err)
	}
	c.shows("all go when only the last is", "", 0)
	if got, want := order(6), "+db-0 +db-1 +db-2 -db-2 -db-1 -db-0 "; got != want {
		c.t.Errorf("pods came and went in the order %s, want %s", got, want)
	}
}

// burst: pods that come and go together wait for nobody's health.
func burst(c statefulSetCluster) {
	c.create(2, setGated, func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement })
	c.shows("both are made at once", "db-0/v1 db-1/v1 ", 0)
	c.patch(`{"spec":{"replicas":4}}`)
	c.shows("more come though none is well", "db-0/v1 db-1/v1 db-2/v1 db-3/v1 ", 0)
	c.well("db-1", corev1.ConditionTrue)
	c.shows("one of them is", "db-0/v1 db-1/v1 db-2/v1 db-3/v1 ", 1)
	c.patch(`{"spec":{"replicas":0}}`)
	c.shows("and all go", "", 0)
}
