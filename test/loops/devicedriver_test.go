package loops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/claims"
	"github.com/everynode/everynode/internal/agent/plugins"
	"github.com/everynode/everynode/internal/testenv"
)

// lamps is a driver whose devices are lamps, made with the library that drivers are made with.
type lamps struct {
	kubeletplugin.DRAPlugin
	mu  sync.Mutex
	lit map[types.UID]bool
}

func (l *lamps) PrepareResourceClaims(_ context.Context, all []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range all {
		var made kubeletplugin.PrepareResult
		for _, r := range c.Status.Allocation.Devices.Results {
			made.Devices = append(made.Devices, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device,
				CDIDeviceIDs: []string{"lamps.example.com/lamp=" + r.Device}})
		}
		l.lit[c.UID], out[c.UID] = true, made
	}
	return out, nil
}

func (l *lamps) UnprepareResourceClaims(_ context.Context, all []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[types.UID]error{}
	for _, c := range all {
		delete(l.lit, c.UID)
		out[c.UID] = nil
	}
	return out, nil
}

func (l *lamps) HandleError(context.Context, error, string) {}

func (l *lamps) WatchHealthStatus(ctx context.Context, _ chan<- kubeletplugin.DeviceHealthReport) error {
	<-ctx.Done()
	return nil
}

func (l *lamps) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lit)
}

// A driver made with Kubernetes' own library registers, publishes its devices, and prepares the one that a daemon claims, for as long as the
// daemon is there.
func TestADriverOfKubernetesLibrary(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t, testenv.SimulatedNodes(1))
	ctx, cancel := context.WithCancel(t.Context())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	nodes, err := env.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	must(err)
	node := nodes.Items[0].Name
	dir := t.TempDir()
	registry := filepath.Join(dir, "r")
	must(errors.Join(os.Mkdir(registry, 0o750), os.Mkdir(filepath.Join(dir, "p"), 0o750)))
	m := claims.New(claims.Config{
		File: filepath.Join(dir, "claims.json"),
		Claim: func(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
			return env.Client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		CDI: func(context.Context) (bool, error) { return true, nil },
	})
	var running sync.WaitGroup
	running.Go(func() {
		plugins.New(plugins.Config{Dir: registry, Clock: clock.RealClock{}, Handlers: map[string]plugins.Handler{registerapi.DRAPlugin: m}}).Run(ctx)
	})
	defer running.Wait()
	defer cancel()

	driver := &lamps{lit: map[types.UID]bool{}}
	helper, err := kubeletplugin.Start(ctx, driver, kubeletplugin.DriverName("lamps.example.com"), kubeletplugin.KubeClient(env.Client),
		kubeletplugin.NodeName(node), kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.PluginDataDirectoryPath(filepath.Join(dir, "p")))
	must(err)
	defer helper.Stop()
	must(helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: {Slices: []resourceslice.Slice{{Devices: []resourcev1.Device{
		{Name: "red", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"color": {StringValue: new("red")}}},
		{Name: "green", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"color": {StringValue: new("green")}}},
	}}}}}}))
	env.Eventually("the driver is registered", func(context.Context) error {
		if s := helper.RegistrationStatus(); s == nil || !s.PluginRegistered {
			return fmt.Errorf("it was told %v", s)
		}
		return nil
	})

	api := env.Client.ResourceV1()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "lamps"}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "lamps.example.com"`}}}
	_, err = api.DeviceClasses().Create(ctx, class, metav1.CreateOptions{})
	must(err)
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "green"}}
	template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "lamp", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "lamps",
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["lamps.example.com"].color == "green"`}}}}}}
	_, err = api.ResourceClaimTemplates("default").Create(ctx, template, metav1.CreateOptions{})
	must(err)
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "light"}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "light"}}
	ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
	ds.Spec.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "mine", ResourceClaimTemplateName: new("green")}}
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "everynode.io/demo:v1",
		Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "mine", Request: "lamp"}}}}}
	_, err = env.Client.AppsV1().DaemonSets("default").Create(ctx, ds, metav1.CreateOptions{})
	must(err)
	var pod *corev1.Pod
	env.Eventually("the daemon has its lamp", func(ctx context.Context) error {
		pods, err := env.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=light"})
		if err != nil || len(pods.Items) != 1 || pods.Items[0].Spec.NodeName != node {
			return fmt.Errorf("%d pods, %w", len(pods.Items), err)
		}
		pod = &pods.Items[0]
		return m.Prepare(ctx, pod)
	})
	names, err := m.Container(ctx, pod, &pod.Spec.Containers[0])
	must(err)
	if !slices.Equal(names, []string{"lamps.example.com/lamp=green"}) || driver.count() != 1 {
		t.Errorf("the container gets %v; %d lamps are lit", names, driver.count())
	}
	must(env.Client.AppsV1().DaemonSets("default").Delete(ctx, "light", metav1.DeleteOptions{}))
	must(m.Release(ctx, pod.UID))
	if driver.count() != 0 {
		t.Errorf("%d lamps are lit after the daemon", driver.count())
	}
	env.Eventually("the claim is gone with the daemon", func(ctx context.Context) error {
		_, err := api.ResourceClaims("default").Get(ctx, *pod.Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}
