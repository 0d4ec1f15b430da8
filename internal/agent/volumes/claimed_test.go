package volumes

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// fakeClaims has one claim with one volume.
type fakeClaims struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
	asked  int
	err    error
}

func (c *fakeClaims) Claim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	c.asked++
	if c.err == nil && c.claim.Name != name {
		return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name)
	}
	return c.claim, c.err
}

func (c *fakeClaims) Volume(context.Context, string) (*corev1.PersistentVolume, error) {
	return c.volume, c.err
}

func (c *fakeClaims) Node() (string, map[string]string) {
	return "n", map[string]string{corev1.LabelHostname: "n"}
}

func newClaims(source corev1.PersistentVolumeSource) *fakeClaims {
	c := &fakeClaims{claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "claim"}}, volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}}
	c.claim.Spec.VolumeName, c.claim.Status.Phase = "v", corev1.ClaimBound
	c.volume.Spec.PersistentVolumeSource = source
	c.volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "data", UID: "claim"}
	return c
}

func onlyOn(host string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host}}}}}}}
}

func claimVolume(readOnly bool) corev1.Volume {
	return corev1.Volume{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: readOnly}}}
}

func TestVolumeOfAClaim(t *testing.T) {
	dir := t.TempDir()
	local := corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}}
	m, _ := newTest(t)
	claims := newClaims(local)
	claims.volume.Spec.NodeAffinity = onlyOn("n")
	m.cfg.Claims = claims
	pod := podWith(claimVolume(false))
	setUp(t, m, pod)
	if got := mountOf(t, m, pod, corev1.VolumeMount{MountPath: "/d", Name: "d"}); got.HostPath != dir || got.ReadOnly {
		t.Errorf("the mount is %+v", got)
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	setUp(t, m, pod)
	if claims.asked != 1 {
		t.Errorf("the claim is read %d times, want once", claims.asked)
	}
	// A new process knows it without the API.
	again := New(m.cfg)
	claims.err = apierrors.NewServiceUnavailable("no server")
	setUp(t, again, pod)
	if got := mountOf(t, again, pod, corev1.VolumeMount{MountPath: "/d", Name: "d"}); got.HostPath != dir {
		t.Errorf("the mount is %+v", got)
	}
	if err := again.TearDown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "sub")); err != nil {
		t.Errorf("what is in the volume does not outlive the pod: %v", err)
	}
	wantError(t, again.SetUp(t.Context(), pod), "no server")

	readOnly := podWith(claimVolume(true))
	readOnly.UID = "uid-2"
	claims.err = nil
	setUp(t, m, readOnly)
	if got := mountOf(t, m, readOnly, corev1.VolumeMount{MountPath: "/d", Name: "d"}); !got.ReadOnly {
		t.Errorf("the mount is %+v", got)
	}
}

func TestVolumeOfAClaimThatCannotBeMounted(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	block := corev1.PersistentVolumeBlock
	for name, c := range map[string]struct {
		edit func(*fakeClaims)
		want string
	}{
		"no claim":     {func(c *fakeClaims) { c.claim.Name = "other" }, `persistentvolumeclaims "data" not found`},
		"not bound":    {func(c *fakeClaims) { c.claim.Status.Phase = corev1.ClaimPending }, "PVC is not bound"},
		"leaving":      {func(c *fakeClaims) { c.claim.DeletionTimestamp = &metav1.Time{} }, "can't start pod because PVC is being deleted"},
		"another's":    {func(c *fakeClaims) { c.volume.Spec.ClaimRef.UID = "other" }, `PersistentVolume "v" is not bound to claim "data"`},
		"elsewhere":    {func(c *fakeClaims) { c.volume.Spec.NodeAffinity = onlyOn("m") }, "its node affinity does not match"},
		"a device":     {func(c *fakeClaims) { c.volume.Spec.VolumeMode = &block }, "volume d has volumeMode Block: this node gives pods no block devices"},
		"not there":    {func(c *fakeClaims) { c.volume.Spec.Local.Path = dir + "/none" }, `path "` + dir + `/none" does not exist`},
		"no directory": {func(c *fakeClaims) { c.volume.Spec.Local.Path = file }, "is no directory"},
		"another kind": {func(c *fakeClaims) { c.volume.Spec.Local, c.volume.Spec.NFS = nil, &corev1.NFSVolumeSource{} }, "this node mounts PersistentVolumes of the kinds hostPath and local"},
		"options":      {func(c *fakeClaims) { c.volume.Spec.MountOptions = []string{"noexec"} }, `PersistentVolume "v" has mountOptions: this node mounts volumes of the kinds hostPath and local without any`},
		"a wrong type": {func(c *fakeClaims) {
			c.volume.Spec.Local, c.volume.Spec.HostPath = nil, &corev1.HostPathVolumeSource{Path: file, Type: ptr(corev1.HostPathDirectory)}
		}, "hostPath type check failed"},
		"steps upwards": {func(c *fakeClaims) {
			c.volume.Spec.Local, c.volume.Spec.HostPath = nil, &corev1.HostPathVolumeSource{Path: "/a/../b"}
		}, "must not contain '..'"},
	} {
		m, _ := newTest(t)
		claims := newClaims(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}})
		c.edit(claims)
		m.cfg.Claims = claims
		if err := m.SetUp(t.Context(), podWith(claimVolume(false))); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), `MountVolume.SetUp failed for volume "d" : `) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	m, _ := newTest(t)
	m.cfg.Claims = newClaims(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}})
	pod := podWith(claimVolume(false))
	pod.Spec.Containers = []corev1.Container{{Name: "c", VolumeDevices: []corev1.VolumeDevice{{Name: "d", DevicePath: "/dev/x"}}}}
	wantError(t, m.SetUp(t.Context(), pod), "volume d has volumeMode Filesystem, but is specified in volumeDevices")
}

// An ephemeral volume's claim is the pod's own.
func TestClaimOfAnEphemeralVolume(t *testing.T) {
	m, _ := newTest(t)
	claims := newClaims(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: t.TempDir()}})
	m.cfg.Claims = claims
	pod := podWith(corev1.Volume{Name: "d", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	claims.claim.Name = pod.Name + "-d"
	wantError(t, m.SetUp(t.Context(), pod), "was not created for pod")
	claims.claim.OwnerReferences = []metav1.OwnerReference{{UID: pod.UID, Controller: ptr(true)}}
	setUp(t, m, pod)
}

// The group of a pod's volumes gets all that is in a local volume, and nothing that links there lead to.
func TestLocalVolumeOfAGroup(t *testing.T) {
	needs.Root(t, "only root gives files to groups")
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	for _, file := range []string{outside, filepath.Join(dir, "a")} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "sub", "link")); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(dir, "tmp")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, os.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	if err := giveToGroup(dir, 4711); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{dir: "dgrwxrwxr-x 4711", filepath.Join(dir, "a"): "-rw-rw---- 4711", filepath.Join(dir, "sub"): "dgrwxrwx--- 4711", shared: "dgtrwxrwxrwx 4711", outside: "-rw------- 0"} {
		info, err := os.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().String() + " " + itoa(uintptr(groupOf(info))); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// A pod may say that files are looked at only if the folder is not the group's. Others look each time.
func TestLocalVolumeThatIsTheGroupsAlready(t *testing.T) {
	needs.Root(t, "only root gives files to groups")
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	pod := podWith(claimVolume(false))
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(4711))}
	for _, c := range []struct {
		policy corev1.PodFSGroupChangePolicy
		group  int
		want   uint32
	}{
		{corev1.FSGroupChangeOnRootMismatch, 0, 4711}, // the folder is root's
		{corev1.FSGroupChangeOnRootMismatch, 0, 0},
		{corev1.FSGroupChangeAlways, 0, 4711},
	} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(file, -1, c.group); err != nil {
			t.Fatal(err)
		}
		pod.Spec.SecurityContext.FSGroupChangePolicy = &c.policy
		if err := setUpLocal(pod, dir, false); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := groupOf(info); got != c.want {
			t.Errorf("%s: the file is group %d's, want %d", c.policy, got, c.want)
		}
	}
}

func groupOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Gid }
