package podresources

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/devices"
)

func TestWhatExportersAreTold(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "one"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}}, Containers: []corev1.Container{{Name: "main"}}}}
	const widget = "example.com/widget"
	dir := t.TempDir()
	s := New(Config{Dir: dir, Clock: clock.RealClock{}, Pods: func() []*corev1.Pod { return []*corev1.Pod{pod} },
		Held: func(uid types.UID) []devices.Held {
			return []devices.Held{{Container: "init", Resource: widget, ID: "w0"}, {Container: "main", Resource: widget, ID: "w0", Nodes: []int64{1}}, {Container: "main", Resource: widget, ID: "w1"}}
		},
		Healthy: func() []devices.Held { return []devices.Held{{Resource: widget, ID: "w9"}} }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := api.NewPodResourcesListerClient(conn)
	short, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	list, err := client.List(short, &api.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil || len(list.PodResources) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	const want = "default/p side[] main[example.com/widget [w0] 1 example.com/widget [w1]]"
	if got := text(list.PodResources[0]); got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	one, err := client.Get(short, &api.GetPodResourcesRequest{PodNamespace: "default", PodName: "p"})
	if err != nil || text(one.PodResources) != want {
		t.Errorf("%v, %v", one, err)
	}
	if _, err := client.Get(short, &api.GetPodResourcesRequest{PodNamespace: "default", PodName: "q"}); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("a pod that is not there: %v", err)
	}
	all, err := client.GetAllocatableResources(short, &api.AllocatableResourcesRequest{})
	if err != nil || len(all.Devices) != 1 || all.Devices[0].DeviceIds[0] != "w9" {
		t.Errorf("%v, %v", all, err)
	}
}

func text(p *api.PodResources) string {
	var containers []string
	for _, c := range p.Containers {
		var devices []string
		for _, d := range c.Devices {
			one := fmt.Sprint(d.ResourceName, " ", d.DeviceIds)
			for _, n := range d.GetTopology().GetNodes() {
				one += fmt.Sprint(" ", n.ID)
			}
			devices = append(devices, one)
		}
		containers = append(containers, fmt.Sprint(c.Name, devices))
	}
	return p.Namespace + "/" + p.Name + " " + strings.Join(containers, " ")
}
