package csi

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// A volume that is mounted stays good, whatever becomes of the API and of the driver's object there.
func TestAMountedVolumeOutlivesTheAPI(t *testing.T) {
	needs.Root(t, "mounting needs root")
	d := newDrivers(t, object(storagev1.VolumeLifecycleEphemeral))
	pod := podWith("one")
	volume, path := &pod.Spec.Volumes[0], d.Path(pod.UID, "v")
	if err := os.MkdirAll(path, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	mounted := true
	unmount := func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); mounted && err != nil {
			t.Error(err)
		}
		mounted = false
	}
	t.Cleanup(unmount)
	if err := d.cfg.Client.StorageV1().CSIDrivers().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := d.SetUp(t.Context(), pod, volume); err != nil {
		t.Errorf("without a CSIDriver: %v", err)
	}
	d.cfg.Client.(*fake.Clientset).PrependReactor("get", "csidrivers", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API is away")
	})
	d.asked.Delete(name)
	if err := d.SetUp(t.Context(), pod, volume); err != nil {
		t.Errorf("without an API: %v", err)
	}
	unmount()
	if err := d.SetUp(t.Context(), pod, volume); err == nil || !strings.Contains(err.Error(), "the API is away") {
		t.Errorf("not mounted, without an API: %v", err)
	}
}

// roundTripper answers requests.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

func TestTheAPIMayNotHang(t *testing.T) {
	asked := 0
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		asked++
		if _, ok := r.Context().Deadline(); !ok {
			t.Errorf("%s has no deadline", r.URL.Path)
		}
		return nil, errors.New("no answer")
	})})
	if err != nil {
		t.Fatal(err)
	}
	d := New(Config{NodeName: "n1", Client: client, PodsDir: t.TempDir()})
	pod := podWith("one")
	if err := d.SetUp(t.Context(), pod, &pod.Spec.Volumes[0]); err == nil || !strings.Contains(err.Error(), "no answer") || asked == 0 {
		t.Errorf("asked %d times, got %v", asked, err)
	}
}

// Looking each minute at volumes that are mounted costs one request for each driver in ten minutes, and not one for each look.
func TestMountedVolumesAskSeldom(t *testing.T) {
	needs.Root(t, "mounting needs root")
	d := newDrivers(t, object(storagev1.VolumeLifecycleEphemeral))
	pod := podWith("one")
	path := d.Path(pod.UID, "v")
	if err := os.MkdirAll(path, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	client := d.cfg.Client.(*fake.Clientset)
	client.ClearActions()
	for range 100 {
		if err := d.SetUp(t.Context(), pod, &pod.Spec.Volumes[0]); err != nil {
			t.Fatal(err)
		}
	}
	if asked := len(client.Actions()); asked != 1 {
		t.Errorf("100 looks made %d requests, want 1", asked)
	}
}

// After a restart of the agent the drivers of the node are known though no server answers: pods with their volumes can end.
func TestADriverIsKnownWithoutAnAPI(t *testing.T) {
	d, driver := newDrivers(t), &testDriver{id: "id-1"}
	d.cfg.Client.(*fake.Clientset).PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API is away")
	})
	if err := d.Register(t.Context(), name, driver.start(t), []string{"1.0.0"}); err == nil {
		t.Error("the driver counts as told to the API")
	}
	conn, err := d.find(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.conn.Close(); err != nil {
		t.Error(err)
	}
}
