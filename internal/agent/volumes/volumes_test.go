package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/testenv/needs"
)

// fakeObjects is a changeable set of API objects that issues numbered tokens.
type fakeObjects struct {
	clock *testingclock.FakeClock

	mu         sync.Mutex
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	tokens     []*authenticationv1.TokenRequest
	reads      int
	tokenErr   error
	asked      func() // told of each request for a token; may be nil
}

func (o *fakeObjects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads++
	if object, ok := o.configMaps[name]; ok {
		return object, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
}

func (o *fakeObjects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if object, ok := o.secrets[name]; ok {
		return object, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

func (o *fakeObjects) ServiceAccountToken(_ context.Context, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	if o.asked != nil {
		o.asked()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tokenErr != nil {
		return nil, o.tokenErr
	}
	o.tokens = append(o.tokens, request)
	answer := request.DeepCopy()
	answer.Status.Token = fmt.Sprintf("%s/%s/%d", namespace, account, len(o.tokens))
	answer.Status.ExpirationTimestamp = metav1.NewTime(o.clock.Now().Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second))
	return answer, nil
}

func (o *fakeObjects) NodeAllocatable() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceCPU: resource.MustParse("3")}
}

func (o *fakeObjects) setConfigMap(name string, data map[string]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.configMaps[name] = &corev1.ConfigMap{Data: data}
}

// newTest returns a Manager in a directory of its own, whose mounts are gone when the test ends.
func newTest(t *testing.T) (*Manager, *fakeObjects) {
	t.Helper()
	needs.Root(t, "mounting needs root")
	objects := &fakeObjects{
		clock:      testingclock.NewFakeClock(time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)),
		configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{},
	}
	root := filepath.Join(t.TempDir(), "pods")
	m := New(Config{
		RootDir: root, Objects: objects, Clock: objects.clock,
		Env: func(pod *corev1.Pod, _ *corev1.Container) ([]env.Var, error) {
			return []env.Var{{Name: "POD", Value: pod.Name}, {Name: "UP", Value: ".."}, {Name: "NONE"}}, nil
		},
	})
	t.Cleanup(func() {
		if err := unmountBelow(root); err != nil {
			t.Error(err)
		}
	})
	return m, objects
}

func podWith(volumes ...corev1.Volume) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", UID: "uid-1", Labels: map[string]string{"app": "x"}},
		Spec: corev1.PodSpec{
			Volumes: volumes, ServiceAccountName: "robot",
			Containers: []corev1.Container{{Name: "main"}},
		},
	}
}

func setUp(t *testing.T, m *Manager, pod *corev1.Pod) {
	t.Helper()
	if err := m.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// hostPath returns where the pod's first volume, or its mount, is.
func hostPath(t *testing.T, m *Manager, pod *corev1.Pod, mount corev1.VolumeMount) string {
	t.Helper()
	return mountOf(t, m, pod, mount).HostPath
}

func mountOf(t *testing.T, m *Manager, pod *corev1.Pod, mount corev1.VolumeMount) Mount {
	t.Helper()
	if mount.Name == "" {
		mount.Name = pod.Spec.Volumes[0].Name
	}
	mounts, err := m.Mounts(t.Context(), pod, &corev1.Container{Name: "main", VolumeMounts: []corev1.VolumeMount{mount}})
	if err != nil {
		t.Fatal(err)
	}
	return mounts[0]
}

func wantError(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want one with %q", err, text)
	}
}

func wantFile(t *testing.T, path, text string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	} else if string(data) != text {
		t.Errorf("%s holds %q, want %q", filepath.Base(path), data, text)
	}
}

// wantMode checks permission bits, setuid, setgid and sticky included, and the owner.
func wantMode(t *testing.T, path string, mode uint32, uid, gid uint32) {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Error(err)
		return
	}
	if stat.Mode&0o7777 != mode || stat.Uid != uid || stat.Gid != gid {
		t.Errorf("%s has mode %o owner %d:%d, want %o %d:%d", path, stat.Mode&0o7777, stat.Uid, stat.Gid, mode, uid, gid)
	}
}

func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}

func withGroup(pod *corev1.Pod, group int64) *corev1.Pod {
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
	return pod
}

func TestHostPathTypes(t *testing.T) {
	m, _ := newTest(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(dir, "sock"), unix.S_IFSOCK|0o600, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(dir, "block"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	const failed = "hostPath type check failed: "
	tests := []struct {
		kind corev1.HostPathType
		path string
		err  string // after the directory, "" for success
	}{
		{"", "nothing", ""},
		{corev1.HostPathDirectory, "", ""},
		{corev1.HostPathDirectory, "nothing", " is not a directory"},
		{corev1.HostPathDirectory, "file", " is not a directory"},
		{corev1.HostPathDirectoryOrCreate, "file", " is not a directory"},
		{corev1.HostPathDirectoryOrCreate, "new/deep", ""},
		{corev1.HostPathDirectoryOrCreate, "new/deep", ""},
		{corev1.HostPathFile, "file", ""},
		{corev1.HostPathFile, "link", ""},
		{corev1.HostPathFile, "", " is not a file"},
		{corev1.HostPathFile, "nothing", " is not a file"},
		{corev1.HostPathFileOrCreate, "sock", " is not a file"},
		{corev1.HostPathFileOrCreate, "newfile", ""},
		{corev1.HostPathSocket, "sock", ""},
		{corev1.HostPathSocket, "file", " is not a socket file"},
		{corev1.HostPathCharDev, "/dev/null", ""},
		{corev1.HostPathCharDev, "block", " is not a character device"},
		{corev1.HostPathBlockDev, "block", ""},
		{corev1.HostPathBlockDev, "/dev/null", " is not a block device"},
	}
	for _, test := range tests {
		t.Run(string(test.kind)+" "+test.path, func(t *testing.T) {
			path := filepath.Join(dir, test.path)
			if filepath.IsAbs(test.path) {
				path = test.path
			}
			kind := test.kind
			pod := podWith(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}})
			err := m.SetUp(t.Context(), pod)
			if test.err != "" {
				wantError(t, err, `MountVolume.SetUp failed for volume "v" : `+failed+path+test.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := hostPath(t, m, pod, corev1.VolumeMount{}); got != path {
				t.Errorf("the container mounts %s, want %s", got, path)
			}
		})
	}
	wantMode(t, filepath.Join(dir, "newfile"), 0o644, 0, 0)
	wantMode(t, filepath.Join(dir, "new/deep"), 0o755, 0, 0)
	gone(t, filepath.Join(dir, "nothing"))

	unknown := corev1.HostPathType("Pipe")
	wantError(t, setUpHostPath(&corev1.HostPathVolumeSource{Path: dir, Type: &unknown}), "Pipe is an invalid volume type")
	wantError(t, setUpHostPath(&corev1.HostPathVolumeSource{Path: dir + "/../x"}), "must not contain '..'")
	created := corev1.HostPathFileOrCreate
	err := setUpHostPath(&corev1.HostPathVolumeSource{Path: dir + "/no/file", Type: &created})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file in a missing directory gives %v", err)
	}
}

func TestEmptyDir(t *testing.T) {
	m, _ := newTest(t)
	volume := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	pod := podWith(volume)
	setUp(t, m, pod)
	dir := hostPath(t, m, pod, corev1.VolumeMount{})
	wantMode(t, dir, 0o777, 0, 0)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kept"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	setUp(t, m, pod)
	wantMode(t, dir, 0o700, 0, 0)
	wantFile(t, filepath.Join(dir, "kept"), "x")
	for range 2 {
		if err := m.TearDown(t.Context(), pod.UID); err != nil {
			t.Fatal(err)
		}
		gone(t, m.podDir(pod.UID))
	}

	// A crash between making the directory and naming it leaves this behind.
	half := filepath.Join(filepath.Dir(dir), "..new-v")
	if err := os.MkdirAll(filepath.Join(half, "rest"), 0o700); err != nil {
		t.Fatal(err)
	}
	setUp(t, m, withGroup(pod, 1234))
	wantMode(t, dir, 0o2777, 0, 1234)
	gone(t, half)
	gone(t, filepath.Join(dir, "rest"))
}

func TestEmptyDirInMemory(t *testing.T) {
	limit := resource.MustParse("1Mi")
	tests := []struct {
		name   string
		limit  *resource.Quantity
		memory string
		want   int64
	}{
		{"its own limit", &limit, "", 1 << 20},
		{"the pod's limit", nil, "2Mi", 2 << 20},
		{"what the node has", nil, "", 64 << 20},
		{"the smallest", &limit, "512Ki", 512 << 10},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, _ := newTest(t)
			pod := withGroup(podWith(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
				Medium: corev1.StorageMediumMemory, SizeLimit: test.limit,
			}}}), 77)
			if test.memory != "" {
				pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(test.memory)}
			}
			setUp(t, m, pod)
			dir := hostPath(t, m, pod, corev1.VolumeMount{})
			var stat unix.Statfs_t
			if err := unix.Statfs(dir, &stat); err != nil {
				t.Fatal(err)
			}
			if stat.Type != unix.TMPFS_MAGIC || int64(stat.Blocks)*stat.Bsize != test.want {
				t.Errorf("type %x of %d bytes, want a tmpfs of %d", stat.Type, int64(stat.Blocks)*stat.Bsize, test.want)
			}
			wantMode(t, dir, 0o3777, 0, 77)
			if stat.Flags&(unix.ST_NOSUID|unix.ST_NODEV) != 0 {
				t.Errorf("mount flags %x forbid programs what they may do in an emptyDir on the disk", stat.Flags)
			}
			if err := os.WriteFile(filepath.Join(dir, "kept"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			setUp(t, m, pod)
			wantFile(t, filepath.Join(dir, "kept"), "x")
			err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, test.want+1), 0o600)
			if test.want < 10<<20 && !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("writing more than the size gives %v", err)
			}
			if err := m.TearDown(t.Context(), pod.UID); err != nil {
				t.Fatal(err)
			}
			gone(t, m.podDir(pod.UID))
		})
	}
}

func TestHugePages(t *testing.T) {
	requests := func(names ...corev1.ResourceName) corev1.ResourceRequirements {
		list := corev1.ResourceList{}
		for _, name := range names {
			list[name] = resource.MustParse("2Mi")
		}
		return corev1.ResourceRequirements{Requests: list}
	}
	tests := []struct {
		name, medium string
		requests     corev1.ResourceRequirements
		err          string
	}{
		{"size in the medium", "HugePages-2Mi", requests(), ""},
		{"size in a request", "HugePages", requests("hugepages-2Mi"), ""},
		{"no size", "HugePages", requests("memory"), "exactly one huge page size, got 0"},
		{"two sizes", "HugePages", requests("hugepages-2Mi", "hugepages-1Gi"), "exactly one huge page size, got 2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, _ := newTest(t)
			pod := podWith(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMedium(test.medium)}}})
			pod.Spec.Containers[0].Resources = test.requests
			err := m.SetUp(t.Context(), pod)
			if test.err != "" {
				wantError(t, err, test.err)
				return
			}
			if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
				t.Skipf("this kernel has no huge pages of 2 MiB: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			var stat unix.Statfs_t
			if err := unix.Statfs(hostPath(t, m, pod, corev1.VolumeMount{}), &stat); err != nil || stat.Type != unix.HUGETLBFS_MAGIC || stat.Bsize != 2<<20 {
				t.Errorf("file system %x with blocks of %d, %v", stat.Type, stat.Bsize, err)
			}
			if err := m.TearDown(t.Context(), pod.UID); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestUnknownVolumes(t *testing.T) {
	m, _ := newTest(t)
	pod := podWith(
		corev1.Volume{Name: "nfs", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}},
		corev1.Volume{Name: "odd", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Paper"}}},
		corev1.Volume{Name: "../up", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		corev1.Volume{Name: "none"},
	)
	err := m.SetUp(t.Context(), pod)
	wantError(t, err, `MountVolume.SetUp failed for volume "nfs" : no volume plugin matched`)
	wantError(t, err, `MountVolume.SetUp failed for volume "odd" : unknown storage medium "Paper"`)
	wantError(t, err, `MountVolume.SetUp failed for volume "../up" : invalid name "../up"`)
	if joined, ok := err.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 3 {
		t.Errorf("want one error per bad volume, got %v", err)
	}
	wantMode(t, hostPath(t, m, pod, corev1.VolumeMount{Name: "none"}), 0o777, 0, 0)
	for _, uid := range []types.UID{"", ".", "..", "a/b", "../x"} {
		pod.UID = uid
		wantError(t, m.SetUp(t.Context(), pod), "invalid name")
		wantError(t, m.TearDown(t.Context(), uid), "invalid name")
	}
}
