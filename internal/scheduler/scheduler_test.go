package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cluster is a scheduler that runs against an API without a server. Time is the test's own; settle waits until nothing
// moves any more.
type cluster struct {
	t      *testing.T
	client *fake.Clientset
	s      *Scheduler
	// metrics has what the scheduler counts.
	metrics *prometheus.Registry
	stop    context.CancelFunc
	ended   chan error
	// refuse, if set, makes bindings fail.
	refuse func(podName string) error
}

type sharedInformers struct {
	factory informers.SharedInformerFactory
}

func (s sharedInformers) GetInformer(_ context.Context, obj client.Object, _ ...crcache.InformerGetOption) (crcache.Informer, error) {
	switch obj.(type) {
	case *corev1.Pod:
		return s.factory.Core().V1().Pods().Informer(), nil
	case *corev1.Node:
		return s.factory.Core().V1().Nodes().Informer(), nil
	case *corev1.Namespace:
		return s.factory.Core().V1().Namespaces().Informer(), nil
	case *policyv1.PodDisruptionBudget:
		return s.factory.Policy().V1().PodDisruptionBudgets().Informer(), nil
	case *storagev1.StorageClass:
		return s.factory.Storage().V1().StorageClasses().Informer(), nil
	case *corev1.PersistentVolume:
		return s.factory.Core().V1().PersistentVolumes().Informer(), nil
	case *corev1.PersistentVolumeClaim:
		return s.factory.Core().V1().PersistentVolumeClaims().Informer(), nil
	}
	return nil, fmt.Errorf("no informer for %T", obj)
}

// start runs a scheduler over the given objects.
func start(t *testing.T, objects ...runtime.Object) *cluster {
	t.Helper()
	c := &cluster{t: t, client: fake.NewClientset(objects...), ended: make(chan error, 1), metrics: prometheus.NewRegistry()}
	c.client.PrependReactor("create", "pods", c.bind)
	ctx, cancel := context.WithCancel(t.Context())
	c.stop = cancel
	factory := informers.NewSharedInformerFactory(c.client, 0)
	s, err := New(Config{Informers: sharedInformers{factory}, Writer: NewWriter(c.client), Events: NewEventSink(c.client), Workers: 4, Registerer: c.metrics})
	if err != nil {
		t.Fatal(err)
	}
	c.s = s
	factory.Core().V1().Pods().Informer()
	factory.Core().V1().Nodes().Informer()
	factory.Core().V1().Namespaces().Informer()
	factory.Policy().V1().PodDisruptionBudgets().Informer()
	factory.Storage().V1().StorageClasses().Informer()
	factory.Core().V1().PersistentVolumes().Informer()
	factory.Core().V1().PersistentVolumeClaims().Informer()
	factory.Start(ctx.Done())
	go func() {
		c.ended <- s.Run(ctx)
		factory.Shutdown()
	}()
	time.Sleep(time.Second) // waiting for informers polls
	synctest.Wait()
	t.Cleanup(func() {
		cancel()
		if err := <-c.ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return c
}

// bind does what the API server does with a binding.
func (c *cluster) bind(action clienttesting.Action) (bool, runtime.Object, error) {
	create := action.(clienttesting.CreateAction)
	if action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	binding := create.GetObject().(*corev1.Binding)
	if c.refuse != nil {
		if err := c.refuse(binding.Name); err != nil {
			return true, nil, err
		}
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	object, err := c.client.Tracker().Get(pods, binding.Namespace, binding.Name)
	if err != nil {
		return true, nil, err
	}
	pod := object.(*corev1.Pod).DeepCopy()
	if pod.UID != binding.UID || pod.Spec.NodeName != "" {
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, pod.Name, errors.New("bound or replaced"))
	}
	if uid := binding.Target.UID; uid != "" {
		target, err := c.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", binding.Target.Name)
		if err != nil || target.(*corev1.Node).UID != uid {
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, pod.Name, errors.New("another node"))
		}
	}
	pod.Spec.NodeName = binding.Target.Name
	return true, binding, c.client.Tracker().Update(pods, pod, pod.Namespace)
}

func (c *cluster) settle() { synctest.Wait() }

func (c *cluster) create(objects ...runtime.Object) {
	c.t.Helper()
	for _, object := range objects {
		if err := c.client.Tracker().Add(object); err != nil {
			c.t.Fatal(err)
		}
	}
	c.settle()
}

func (c *cluster) pod(name string) *corev1.Pod {
	c.t.Helper()
	pod, err := c.client.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return pod
}

func (c *cluster) expectOn(podName, nodeName string) {
	c.t.Helper()
	if got := c.pod(podName).Spec.NodeName; got != nodeName {
		c.t.Errorf("pod %s is on node %q, want %q", podName, got, nodeName)
	}
}

func (c *cluster) expectPending(podName, text string) {
	c.t.Helper()
	pod := c.pod(podName)
	if pod.Spec.NodeName != "" {
		c.t.Errorf("pod %s is on node %s, want pending", podName, pod.Spec.NodeName)
	}
	condition := scheduledCondition(pod)
	if condition == nil || condition.Status != corev1.ConditionFalse || condition.Reason != corev1.PodReasonUnschedulable || condition.Message != text {
		c.t.Errorf("pod %s has condition %+v\nwant Unschedulable: %s", podName, condition, text)
	}
}

func scheduledCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodScheduled {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// events returns "Type Reason Message" of the pod's events.
func (c *cluster) events(podName string) []string {
	c.t.Helper()
	list, err := c.client.CoreV1().Events("default").List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var texts []string
	for _, event := range list.Items {
		if event.InvolvedObject.Name == podName {
			texts = append(texts, fmt.Sprintf("%s %s %s: %s", event.Source.Component, event.Type, event.Reason, event.Message))
		}
	}
	return texts
}

func (c *cluster) expectEvent(podName, text string) {
	c.t.Helper()
	got := c.events(podName)
	for _, event := range got {
		if event == text {
			return
		}
	}
	c.t.Errorf("pod %s has events\n%s\nwant %s", podName, strings.Join(got, "\n"), text)
}

func node(name, cpu, memory string, edits ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse("110"),
		}},
	}
	for _, edit := range edits {
		edit(n)
	}
	return n
}

func pod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("pod-" + name)},
		Spec:       corev1.PodSpec{SchedulerName: Name, Containers: []corev1.Container{{Name: "main"}}},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func requests(cpu, memory string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}
	}
}

func pinnedTo(nodeName string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName}}},
			}}},
		}}
	}
}

func TestBindsPinnedPodsToTheirNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "2", "4Gi"), node("b", "2", "4Gi"), pod("early", pinnedTo("b")))
		c.expectOn("early", "b")
		c.create(pod("late", pinnedTo("a")))
		c.expectOn("late", "a")
		c.expectEvent("late", "default-scheduler Normal Scheduled: Successfully assigned default/late to a")
	})
}

func TestLeavesPodsOfOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := metav1.Now()
		c := start(t, node("a", "2", "4Gi"),
			pod("other", func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }),
			pod("gated", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}} }),
			pod("leaving", func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &now, []string{"test"} }))
		for _, name := range []string{"other", "gated", "leaving"} {
			c.expectOn(name, "")
			if events := c.events(name); len(events) > 0 {
				t.Errorf("pod %s has events %q, want none", name, events)
			}
		}
		gated := c.pod("gated").DeepCopy()
		gated.Spec.SchedulingGates = nil
		c.update(gated)
		c.expectOn("gated", "a")
	})
}

func (c *cluster) update(object runtime.Object) {
	c.t.Helper()
	var err error
	switch object := object.(type) {
	case *corev1.Pod:
		_, err = c.client.CoreV1().Pods(object.Namespace).Update(c.t.Context(), object, metav1.UpdateOptions{})
	case *corev1.Node:
		_, err = c.client.CoreV1().Nodes().Update(c.t.Context(), object, metav1.UpdateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.settle()
}

func TestSaysWhyAndTriesAgainWhenRoomIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "2", "1Gi"), node("b", "2", "4Gi"), node("c", "2", "4Gi"))
		c.create(pod("first", pinnedTo("a"), requests("100m", "800Mi")))
		c.create(pod("second", pinnedTo("a"), requests("100m", "800Mi")))
		c.expectOn("first", "a")
		text := "0/3 nodes are available: 1 Insufficient memory, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. " +
			"preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
		c.expectPending("second", text)
		c.expectEvent("second", "default-scheduler Warning FailedScheduling: "+text)

		if err := c.client.CoreV1().Pods("default").Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.settle()
		c.expectOn("second", "") // its back-off runs
		time.Sleep(time.Second)
		c.settle()
		c.expectOn("second", "a")
	})
}

func TestVanishedNodeAndNoNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, pod("any"))
		c.expectPending("any", "no nodes available to schedule pods")
		c.create(node("a", "2", "4Gi"), node("b", "2", "4Gi"))
		time.Sleep(time.Second)
		c.settle()
		if c.pod("any").Spec.NodeName == "" {
			t.Error("pod any is pending, want it on a node that was added")
		}
		c.create(pod("lost", pinnedTo("gone")))
		c.expectPending("lost", "0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. "+
			"preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.")
		c.create(node("gone", "1", "1Gi"))
		time.Sleep(time.Second)
		c.settle()
		c.expectOn("lost", "gone")
	})
}

func TestRefusedBindingIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "1", "1Gi"))
		failures := 2
		c.refuse = func(string) error {
			failures--
			if failures >= 0 {
				return apierrors.NewInternalError(errors.New("disk full"))
			}
			return nil
		}
		c.create(pod("p", requests("1", "1Gi")))
		c.expectOn("p", "")
		if condition := scheduledCondition(c.pod("p")); condition == nil || condition.Reason != corev1.PodReasonSchedulerError {
			t.Errorf("condition is %+v, want reason SchedulerError", condition)
		}
		time.Sleep(3 * time.Second) // 1 s and 2 s of back-off
		c.settle()
		c.expectOn("p", "a")
	})
}

func TestSpreadsPodsOfOneController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "4", "8Gi"), node("b", "4", "8Gi"), node("c", "4", "8Gi"))
		yes := true
		perNode := map[string]int{}
		for i := range 6 {
			name := fmt.Sprintf("p%d", i)
			c.create(pod(name, func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: &yes}}
			}))
			perNode[c.pod(name).Spec.NodeName]++
		}
		for _, name := range []string{"a", "b", "c"} {
			if perNode[name] != 2 {
				t.Errorf("pods per node are %v, want 2 on each", perNode)
			}
		}
	})
}

func TestRestartKeepsWhatIsBoundAndFinishesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bound := pod("bound", requests("1", "1Gi"))
		bound.Spec.NodeName = "a"
		c := start(t, node("a", "1", "2Gi"), bound, pod("waiting", requests("1", "1Gi")))
		c.expectOn("bound", "a")
		if c.pod("waiting").Spec.NodeName != "" {
			t.Error("pod waiting was put beside a pod that fills the node")
		}
	})
}

func TestPodThatWantsCompanyComesWhenItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "4", "8Gi"), node("b", "4", "8Gi"))
		c.create(pod("web", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			}}}}
		}))
		c.expectPending("web", "0/2 nodes are available: 2 node(s) didn't match pod affinity rules. "+
			"preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.")
		c.create(pod("db", pinnedTo("b"), func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} }))
		time.Sleep(time.Second)
		c.settle()
		c.expectOn("web", "b")
	})
}
