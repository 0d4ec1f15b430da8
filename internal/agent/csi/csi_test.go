package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

const name = "secrets.example.com"

// testDriver makes a folder with a file for every volume.
type testDriver struct {
	csiapi.UnimplementedNodeServer
	id      string
	segment string // in place of example.com/zone
	publish []*csiapi.NodePublishVolumeRequest
	refuse  error
	// hangs is in the paths whose unmounts wait until goOn is closed.
	hangs string
	goOn  chan struct{}
}

func (d *testDriver) NodeGetInfo(context.Context, *csiapi.NodeGetInfoRequest) (*csiapi.NodeGetInfoResponse, error) {
	return &csiapi.NodeGetInfoResponse{NodeId: d.id, MaxVolumesPerNode: 3, AccessibleTopology: &csiapi.Topology{Segments: map[string]string{cmp.Or(d.segment, "example.com/zone"): "z1"}}}, nil
}

func (d *testDriver) NodePublishVolume(_ context.Context, r *csiapi.NodePublishVolumeRequest) (*csiapi.NodePublishVolumeResponse, error) {
	d.publish = append(d.publish, r)
	if d.refuse != nil {
		return nil, d.refuse
	}
	return &csiapi.NodePublishVolumeResponse{}, os.MkdirAll(r.TargetPath, 0o755)
}

func (d *testDriver) NodeUnpublishVolume(_ context.Context, r *csiapi.NodeUnpublishVolumeRequest) (*csiapi.NodeUnpublishVolumeResponse, error) {
	if d.hangs != "" && strings.Contains(r.TargetPath, d.hangs) {
		<-d.goOn
	}
	return &csiapi.NodeUnpublishVolumeResponse{}, os.RemoveAll(r.TargetPath)
}

func (d *testDriver) start(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "csi.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csiapi.RegisterNodeServer(server, d)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return socket
}

func newDrivers(t *testing.T, objects ...*storagev1.CSIDriver) *Drivers {
	t.Helper()
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"key": []byte("value")}})
	for _, o := range objects {
		if _, err := client.StorageV1().CSIDrivers().Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return New(Config{NodeName: "n1", Client: client, PodsDir: t.TempDir()})
}

func object(modes ...storagev1.VolumeLifecycleMode) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{PodInfoOnMount: ptr.To(true), VolumeLifecycleModes: modes}}
}

// state is what the API says about the node's drivers.
func state(t *testing.T, d *Drivers) string {
	t.Helper()
	n, err := d.cfg.Client.StorageV1().CSINodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := d.cfg.Client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, e := range n.Spec.Drivers {
		text += fmt.Sprintf("%s %s %v %d; ", e.Name, e.NodeID, e.TopologyKeys, *e.Allocatable.Count)
	}
	return text + string(n.OwnerReferences[0].UID) + " " + node.Annotations[nodeIDAnnotation] + " " + node.Labels["example.com/zone"]
}

func TestADriverComesAndGoes(t *testing.T) {
	d, driver := newDrivers(t), &testDriver{id: "id-1"}
	socket := driver.start(t)
	if err := d.Register(t.Context(), name, socket, []string{"0.3"}); err == nil || !strings.Contains(err.Error(), `none of the CSI versions reported by this driver are supported: ["0.3"]`) {
		t.Errorf("an old driver: %v", err)
	}
	for range 2 { // again and again
		if err := d.Register(t.Context(), name, socket, []string{"1.0.0"}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := state(t, d), `secrets.example.com id-1 [example.com/zone] 3; u1 {"secrets.example.com":"id-1"} z1`; got != want {
		t.Errorf("the API says %s, want %s", got, want)
	}
	d.Deregister(t.Context(), name)
	if got, want := state(t, d), `u1  z1`; got != want {
		t.Errorf("the API says %s, want %s", got, want)
	}
	driver.id = ""
	if err := d.Register(t.Context(), name, socket, []string{"1.0.0"}); err == nil || !strings.Contains(err.Error(), "no ID for the node") {
		t.Errorf("a driver without an ID: %v", err)
	}
}

// refuseChanges has the API refuse, as it does, another entry in place of one of the same name.
func refuseChanges(d *Drivers) {
	client := d.cfg.Client.(*fake.Clientset)
	client.PrependReactor("update", "csinodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		object, err := client.Tracker().Get(action.GetResource(), "", "n1")
		if err != nil {
			return true, nil, err
		}
		for _, was := range object.(*storagev1.CSINode).Spec.Drivers {
			for _, is := range action.(clienttesting.UpdateAction).GetObject().(*storagev1.CSINode).Spec.Drivers {
				if is.Name == was.Name && !equality.Semantic.DeepEqual(is, was) {
					return true, nil, apierrors.NewInvalid(storagev1.SchemeGroupVersion.WithKind("CSINode").GroupKind(), "n1", nil)
				}
			}
		}
		return false, nil, nil
	})
}

func TestADriverComesBackDifferent(t *testing.T) {
	d, driver, other := newDrivers(t), &testDriver{id: "id-1"}, &testDriver{id: "id-o"}
	refuseChanges(d)
	socket := driver.start(t)
	if err := d.Register(t.Context(), "other.example.com", other.start(t), []string{"1.0.0"}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ id, segment, want string }{
		{"id-1", "", `id-1 [example.com/zone] 3; u1 {"other.example.com":"id-o","secrets.example.com":"id-1"} z1`},
		{"id-1", "example.com/rack", `id-1 [example.com/rack] 3; u1 {"other.example.com":"id-o","secrets.example.com":"id-1"} z1`},
		{"id-2", "example.com/rack", `id-2 [example.com/rack] 3; u1 {"other.example.com":"id-o","secrets.example.com":"id-2"} z1`},
	} {
		driver.id, driver.segment = test.id, test.segment
		if err := d.Register(t.Context(), name, socket, []string{"1.0.0"}); err != nil {
			t.Fatal(err)
		}
		if got, want := state(t, d), "other.example.com id-o [example.com/zone] 3; secrets.example.com "+test.want; got != want {
			t.Errorf("the API says %s, want %s", got, want)
		}
	}
}

// The labels of a node may be the administrator's or another driver's.
func TestADriverMayNotMoveTheNode(t *testing.T) {
	d, driver := newDrivers(t), &testDriver{id: "id-1"}
	nodes := d.cfg.Client.CoreV1().Nodes()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Labels: map[string]string{"example.com/zone": "z9"}}}
	if _, err := nodes.Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	const want = `detected topology value collision: driver reported "example.com/zone":"z1" but existing label is "example.com/zone":"z9"`
	if err := d.Register(t.Context(), name, driver.start(t), []string{"1.0.0"}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	node, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if node.Labels["example.com/zone"] != "z9" || node.Annotations[nodeIDAnnotation] != "" {
		t.Errorf("the node has labels %v and annotations %v", node.Labels, node.Annotations)
	}
	if _, err := d.find(name); err == nil {
		t.Error("the driver is registered all the same")
	}
}

func podWith(uid string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: types.UID(uid)}, Spec: corev1.PodSpec{ServiceAccountName: "sa"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: name, ReadOnly: ptr.To(true), VolumeAttributes: map[string]string{"a": "b"}, NodePublishSecretRef: &corev1.LocalObjectReference{Name: "s"}}}}}
	return pod
}

func TestAVolumeThatAPodAsksFor(t *testing.T) {
	d, driver := newDrivers(t, object(storagev1.VolumeLifecycleEphemeral)), &testDriver{id: "id-1"}
	pod := podWith("one")
	volume := &pod.Spec.Volumes[0]
	if err := d.SetUp(t.Context(), pod, volume); err == nil || err.Error() != "driver name secrets.example.com not found in the list of registered CSI drivers" {
		t.Errorf("before the driver came: %v", err)
	}
	if err := d.Register(t.Context(), name, driver.start(t), []string{"1.0.0"}); err != nil {
		t.Fatal(err)
	}
	if err := d.SetUp(t.Context(), pod, volume); err != nil {
		t.Fatal(err)
	}
	r := driver.publish[0]
	const want = "map[a:b csi.storage.k8s.io/ephemeral:true csi.storage.k8s.io/pod.name:p csi.storage.k8s.io/pod.namespace:default csi.storage.k8s.io/pod.uid:one csi.storage.k8s.io/serviceAccount.name:sa]"
	if got := fmt.Sprint(r.VolumeContext); got != want || !r.Readonly || r.Secrets["key"] != "value" || !strings.HasPrefix(r.VolumeId, "csi-") || r.TargetPath != d.Path("one", "v") {
		t.Errorf("the driver is asked %v, want it to be told %s", r, want)
	}
	// An agent that starts again knows whose volume it is.
	again := New(d.cfg)
	if err := again.Sweep(t.Context(), func(types.UID) bool { return false }); err == nil || !strings.Contains(err.Error(), "not found in the list of registered CSI drivers") {
		t.Errorf("swept before the driver came: %v", err)
	}
	again.sockets = d.sockets
	if err := again.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(d.cfg.PodsDir); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if err := again.TearDown(t.Context(), "one"); err != nil {
		t.Errorf("a pod without volumes: %v", err)
	}
}

// Tokens go where the driver looks for them, and nowhere else: what it is told of a volume ends up in logs.
func TestTokensGoWhereTheDriverWants(t *testing.T) {
	for _, test := range []struct{ inSecrets, ownSecret bool }{{false, true}, {true, true}, {true, false}} {
		o := object(storagev1.VolumeLifecycleEphemeral)
		o.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: "vault"}}
		o.Spec.ServiceAccountTokenInSecrets = ptr.To(test.inSecrets)
		d, driver := newDrivers(t, o), &testDriver{id: "id-1"}
		d.cfg.Client.(*fake.Clientset).PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
			request := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest)
			return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "for-" + request.Spec.Audiences[0]}}, nil
		})
		if err := d.Register(t.Context(), name, driver.start(t), []string{"1.0.0"}); err != nil {
			t.Fatal(err)
		}
		pod := podWith("one")
		if !test.ownSecret {
			pod.Spec.Volumes[0].CSI.NodePublishSecretRef = nil
		}
		if err := d.SetUp(t.Context(), pod, &pod.Spec.Volumes[0]); err != nil {
			t.Fatal(err)
		}
		const key, want = "csi.storage.k8s.io/serviceAccount.tokens", `{"vault":{"token":"for-vault","expirationTimestamp":null}}`
		r := driver.publish[0]
		there, elsewhere := r.VolumeContext, r.Secrets
		if test.inSecrets {
			there, elsewhere = r.Secrets, r.VolumeContext
		}
		if _, twice := elsewhere[key]; there[key] != want || twice {
			t.Errorf("%+v: the driver is told %v, with secrets %v", test, r.VolumeContext, r.Secrets)
		}
		if (r.Secrets["key"] == "value") != test.ownSecret {
			t.Errorf("%+v: the secrets are %v", test, r.Secrets)
		}
	}
}

func TestAFailedVolumeIsGivenBackToo(t *testing.T) {
	d, driver := newDrivers(t, object(storagev1.VolumeLifecycleEphemeral)), &testDriver{id: "id-1", refuse: fmt.Errorf("out of secrets")}
	if err := d.Register(t.Context(), name, driver.start(t), []string{"1.0.0"}); err != nil {
		t.Fatal(err)
	}
	pod := podWith("one")
	if err := d.SetUp(t.Context(), pod, &pod.Spec.Volumes[0]); err == nil || !strings.Contains(err.Error(), "out of secrets") {
		t.Errorf("got %v", err)
	}
	if err := d.TearDown(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(d.cfg.PodsDir); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestDriversThatMakeNoSuchVolumes(t *testing.T) {
	pod := podWith("one")
	for want, d := range map[string]*Drivers{
		`volume mode "Ephemeral" not supported by driver secrets.example.com (no CSIDriver object)`:          newDrivers(t),
		`volume mode "Ephemeral" not supported by driver secrets.example.com (only supports ["Persistent"])`: newDrivers(t, object(storagev1.VolumeLifecyclePersistent)),
	} {
		if err := d.SetUp(t.Context(), pod, &pod.Spec.Volumes[0]); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// An unmount that hangs, as of a file system whose machine is away, holds up neither other pods' volumes nor others of
// the pod.
func TestAnUnmountThatHangsHoldsUpNoOther(t *testing.T) {
	d := newDrivers(t, object(storagev1.VolumeLifecycleEphemeral))
	driver := &testDriver{id: "id-1", hangs: "/a-first/", goOn: make(chan struct{})}
	err := d.Register(t.Context(), name, driver.start(t), []string{"1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"one", "two"} {
		pod := podWith(uid)
		for _, volume := range []string{"a-first", "b-second"} {
			if uid == "two" && volume == "a-first" {
				continue
			}
			v := pod.Spec.Volumes[0]
			v.Name = volume
			err := d.SetUp(t.Context(), pod, &v)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	swept := make(chan error, 1)
	go func() { swept <- d.Sweep(t.Context(), func(types.UID) bool { return false }) }()
	gone := func(path string) bool { _, err := os.Stat(path); return errors.Is(err, os.ErrNotExist) }
	for deadline := time.Now().Add(time.Minute); !gone(d.Path("one", "b-second")) || !gone(d.Path("two", "b-second")); {
		if time.Now().After(deadline) {
			t.Fatal("what other volumes have mounted is still there after a minute")
		}
		time.Sleep(time.Millisecond)
	}
	if gone(d.Path("one", "a-first")) || len(swept) > 0 {
		t.Error("nothing hangs")
	}
	close(driver.goOn)
	if err := <-swept; err != nil {
		t.Error(err)
	}
}
