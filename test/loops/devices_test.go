package loops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/scheduler/devices"
	"github.com/everynode/everynode/internal/testenv"
)

// wanting is a DaemonSet whose daemons want a device each.
func wanting(name string) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	ds.Spec.Template.Labels = labels
	ds.Spec.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("a-gpu")}}
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "everynode.io/demo:v1",
		Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}}
	return ds
}

// Each daemon gets a device of its node. Where there is none its pod says so, and gets one when it is free.
func TestDaemonsGetDevicesOfTheirNodes(t *testing.T) {
	t.Parallel()
	const nodes = 3
	env := testenv.Start(t, testenv.SimulatedNodes(nodes))
	ctx, api := t.Context(), env.Client.ResourceV1()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	list, err := env.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	must(err)
	for _, node := range list.Items {
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
		slice.Spec = resourcev1.ResourceSliceSpec{Driver: "d.example.com", NodeName: new(node.Name), Pool: resourcev1.ResourcePool{Name: node.Name, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "gpu-0"}}}
		_, err = api.ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
		must(err)
	}
	_, err = api.DeviceClasses().Create(ctx, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}}, metav1.CreateOptions{})
	must(err)
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a-gpu"}}
	template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpus"}}}
	_, err = api.ResourceClaimTemplates("default").Create(ctx, template, metav1.CreateOptions{})
	must(err)
	for _, name := range []string{"first", "second"} {
		_, err = env.Client.AppsV1().DaemonSets("default").Create(ctx, wanting(name), metav1.CreateOptions{})
		must(err)
		if name == "first" {
			env.Eventually("the first DaemonSet has its devices", haveDevices(env, name, nodes))
		}
	}
	env.Eventually("the second one says what is missing", func(ctx context.Context) error {
		pods, err := env.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=second"})
		if err != nil {
			return err
		}
		told := 0
		for _, pod := range pods.Items {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "1 "+devices.TextNone) {
					told++
				}
			}
		}
		if told != nodes {
			return fmt.Errorf("%d of %d pods say so", told, nodes)
		}
		return nil
	})
	must(env.Client.AppsV1().DaemonSets("default").Delete(ctx, "first", metav1.DeleteOptions{}))
	env.Eventually("the second DaemonSet has the devices", haveDevices(env, "second", nodes))
}

// haveDevices says whether all daemons run, each with a claim that has a device of its node and is kept for it.
func haveDevices(env *testenv.Env, name string, nodes int) func(context.Context) error {
	return func(ctx context.Context) error {
		pods, err := env.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		if len(pods.Items) != nodes {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		for _, pod := range pods.Items {
			if pod.Spec.NodeName == "" || len(pod.Status.ResourceClaimStatuses) != 1 {
				return fmt.Errorf("pod %s is on node %q: %v", pod.Name, pod.Spec.NodeName, pod.Status.Conditions)
			}
			claim, err := env.Client.ResourceV1().ResourceClaims("default").Get(ctx, *pod.Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if claim.Status.Allocation == nil || devices.Node(claim) != pod.Spec.NodeName || len(claim.Status.ReservedFor) != 1 || claim.Status.ReservedFor[0].UID != pod.UID {
				return fmt.Errorf("the claim of %s is %+v", pod.Name, claim.Status)
			}
			if len(claim.Finalizers) != 1 {
				return errors.New("its claim is not protected")
			}
		}
		return nil
	}
}
