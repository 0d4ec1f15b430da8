package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
)

func ptr[T any](v T) *T { return &v }

func configMapVolume(name string, items ...corev1.KeyToPath) corev1.Volume {
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items,
	}}}
}

func secretVolume(name string, items ...corev1.KeyToPath) corev1.Volume {
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, Items: items}}}
}

func projectedVolume(sources ...corev1.VolumeProjection) corev1.Volume {
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}}
}

func tokenSource(path, audience string, seconds *int64) corev1.VolumeProjection {
	return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: path, Audience: audience, ExpirationSeconds: seconds}}
}

// shown lists the files that a user of the volume finds, as path=content, hidden ones of the machinery left out.
func shown(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		root, err := filepath.EvalSymlinks(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			list = append(list, entry.Name()+strings.TrimPrefix(path, root)+"="+string(data))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}

func wantShown(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := shown(t, dir); !slices.Equal(got, want) {
		t.Errorf("the volume shows %q, want %q", got, want)
	}
}

func TestConfigMap(t *testing.T) {
	m, objects := newTest(t)
	objects.configMaps["c"] = &corev1.ConfigMap{
		Data: map[string]string{"a": "1", "b.conf": "zwei ü"}, BinaryData: map[string][]byte{"bin": {0, 255}},
	}
	pod := podWith(configMapVolume("c"))
	setUp(t, m, pod)
	mount := mountOf(t, m, pod, corev1.VolumeMount{MountPath: "etc/x"})
	if !mount.ReadOnly || mount.ContainerPath != "/etc/x" || mount.Propagation != corev1.MountPropagationNone || mount.Name != "v" {
		t.Errorf("mount %+v", mount)
	}
	dir := mount.HostPath
	wantShown(t, dir, "a=1", "b.conf=zwei ü", "bin=\x00\xff")
	wantMode(t, filepath.Join(dir, "a"), 0o644, 0, 0)

	before, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	setUp(t, m, pod)
	if now, _ := os.Readlink(filepath.Join(dir, "..data")); now != before {
		t.Error("content that didn't change was written again")
	}
	objects.setConfigMap("c", map[string]string{"a": "2", "new": "3"})
	m.refresh(t.Context())
	wantShown(t, dir, "a=2", "new=3")
	gone(t, filepath.Join(dir, before))
	gone(t, filepath.Join(dir, "b.conf"))

	pod.Spec.Volumes[0] = configMapVolume("c",
		corev1.KeyToPath{Key: "a", Path: "sub/dir/first", Mode: ptr[int32](0o400)}, corev1.KeyToPath{Key: "new", Path: "zwei-ü"})
	pod.Spec.Volumes[0].ConfigMap.DefaultMode = ptr[int32](0o640)
	setUp(t, m, pod)
	wantShown(t, dir, "sub/dir/first=2", "zwei-ü=3")
	wantMode(t, filepath.Join(dir, "sub/dir/first"), 0o400, 0, 0)
	wantMode(t, filepath.Join(dir, "zwei-ü"), 0o640, 0, 0)
	wantMode(t, filepath.Join(dir, "sub/dir"), 0o755, 0, 0)
}

func TestMissingContent(t *testing.T) {
	m, objects := newTest(t)
	objects.setConfigMap("c", map[string]string{"a": "1"})
	objects.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"a": []byte("1")}}
	optionalMap, optionalSecret := configMapVolume("gone"), secretVolume("gone")
	optionalMap.ConfigMap.Optional, optionalSecret.Secret.Optional = ptr(true), ptr(true)
	optionalKey := configMapVolume("c", corev1.KeyToPath{Key: "no", Path: "x"}, corev1.KeyToPath{Key: "a", Path: "a"})
	optionalKey.ConfigMap.Optional = ptr(true)
	tests := []struct {
		name   string
		volume corev1.Volume
		err    string
		shown  []string
	}{
		{"config map", configMapVolume("gone"), `MountVolume.SetUp failed for volume "v" : configmap "gone" not found`, nil},
		{"secret", secretVolume("gone"), `MountVolume.SetUp failed for volume "v" : secret "gone" not found`, nil},
		{"key", configMapVolume("c", corev1.KeyToPath{Key: "no", Path: "x"}), "configmap references non-existent config key: no", nil},
		{"secret key", secretVolume("s", corev1.KeyToPath{Key: "no", Path: "x"}), "references non-existent secret key: no", nil},
		{"optional config map", optionalMap, "", nil},
		{"optional secret", optionalSecret, "", nil},
		{"optional key", optionalKey, "", []string{"a=1"}},
		{"path out", configMapVolume("c", corev1.KeyToPath{Key: "a", Path: "../x"}), "must not contain '..'", nil},
		{"path out, deep", configMapVolume("c", corev1.KeyToPath{Key: "a", Path: "a/../../x"}), "must not contain '..'", nil},
		{"absolute path", configMapVolume("c", corev1.KeyToPath{Key: "a", Path: "/x"}), "must be relative path", nil},
		{"reserved name", configMapVolume("c", corev1.KeyToPath{Key: "a", Path: "..data"}), "must not start with '..'", nil},
		{"long name", configMapVolume("c", corev1.KeyToPath{Key: "a", Path: strings.Repeat("x", 256)}), "255 characters", nil},
		{"empty path", configMapVolume("c", corev1.KeyToPath{Key: "a", Path: ""}), "must not be empty", nil},
		{"odd path", configMapVolume("c", corev1.KeyToPath{Key: "a", Path: "a//b"}), "is not a plain path", nil},
		{"trust bundle", projectedVolume(corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}), "not supported by this node", nil},
		{"nothing", projectedVolume(corev1.VolumeProjection{}), "a kind that this node does not support", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod := podWith(test.volume)
			defer func() {
				if err := m.TearDown(t.Context(), pod.UID); err != nil {
					t.Error(err)
				}
			}()
			err := m.SetUp(t.Context(), pod)
			if test.err != "" {
				wantError(t, err, test.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantShown(t, hostPath(t, m, pod, corev1.VolumeMount{}), test.shown...)
		})
	}
}

func TestSecretIsInMemory(t *testing.T) {
	m, objects := newTest(t)
	objects.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"key": []byte("geheim"), "big": make([]byte, 1<<20)}}
	pod := withGroup(podWith(secretVolume("s")), 4321)
	pod.Spec.Volumes[0].Secret.DefaultMode = ptr[int32](0o400)
	setUp(t, m, pod)
	dir := hostPath(t, m, pod, corev1.VolumeMount{})
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil || stat.Type != unix.TMPFS_MAGIC {
		t.Errorf("the secret is on a file system of type %x, %v", stat.Type, err)
	}
	wantFile(t, filepath.Join(dir, "key"), "geheim")
	wantMode(t, filepath.Join(dir, "key"), 0o440, 0, 4321) // the pod's group reads
	wantMode(t, filepath.Join(dir, "..data"), 0o2755, 0, 4321)
	if err := m.TearDown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	gone(t, m.podDir(pod.UID))
}

func TestDownwardAPI(t *testing.T) {
	m, _ := newTest(t)
	field := func(path, field string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}
	}
	pod := podWith(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
		field("labels", "metadata.labels"), field("name", "metadata.name"),
		{Path: "cpu", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.cpu", Divisor: resource.MustParse("1m")}},
	}}}})
	setUp(t, m, pod)
	dir := hostPath(t, m, pod, corev1.VolumeMount{})
	wantShown(t, dir, "cpu=3000", `labels=app="x"`, "name=p")

	changed := pod.DeepCopy()
	changed.Labels["active"] = "yes"
	setUp(t, m, changed)
	wantShown(t, dir, "cpu=3000", "labels=active=\"yes\"\napp=\"x\"", "name=p")

	changed.Spec.Volumes[0].DownwardAPI.Items = []corev1.DownwardAPIVolumeFile{field("x", "spec.nodeName"), {Path: "y"}}
	err := m.SetUp(t.Context(), changed)
	wantError(t, err, `downward API file "x": unsupported fieldPath: spec.nodeName`)
	wantError(t, err, `downward API file "y": neither fieldRef nor resourceFieldRef is set`)
}

func TestProjected(t *testing.T) {
	m, objects := newTest(t)
	objects.setConfigMap("ca", map[string]string{"ca.crt": "CA"})
	objects.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"pw": []byte("x")}}
	pod := podWith(projectedVolume(
		tokenSource("token", "", nil), tokenSource("vault/token", "vault", ptr[int64](600)),
		corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "ca"}}},
		corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "s"},
			Items: []corev1.KeyToPath{{Key: "pw", Path: "vault/pw"}}}},
		corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
	))
	setUp(t, m, pod)
	dir := hostPath(t, m, pod, corev1.VolumeMount{})
	wantShown(t, dir, "ca.crt=CA", "namespace=team", "token=team/robot/1", "vault/pw=x", "vault/token=team/robot/2")
	wantMode(t, filepath.Join(dir, "token"), 0o644, 0, 0)
	request := objects.tokens[1].Spec
	if ref := request.BoundObjectRef; *request.ExpirationSeconds != 600 || request.Audiences[0] != "vault" || ref.Kind != "Pod" || ref.Name != "p" || ref.UID != "uid-1" {
		t.Errorf("token request %+v bound to %+v", request, request.BoundObjectRef)
	}

	// The token for ten minutes is renewed after eight, the one for an hour isn't yet.
	objects.clock.Step(7 * time.Minute)
	m.refresh(t.Context())
	wantFile(t, filepath.Join(dir, "vault/token"), "team/robot/2")
	objects.clock.Step(2 * time.Minute)
	m.refresh(t.Context())
	wantFile(t, filepath.Join(dir, "vault/token"), "team/robot/3")
	wantFile(t, filepath.Join(dir, "token"), "team/robot/1")

	// While the server is away the old token stays, also when it has ended; if the server refuses another one, that is told then.
	objects.tokenErr = errors.New("server is away")
	objects.clock.Step(9 * time.Minute)
	setUp(t, m, pod)
	wantFile(t, filepath.Join(dir, "vault/token"), "team/robot/3")
	objects.clock.Step(2 * time.Minute)
	setUp(t, m, pod)
	wantFile(t, filepath.Join(dir, "vault/token"), "team/robot/3")
	objects.tokenErr = apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "robot", errors.New("no"))
	objects.clock.Step(4 * time.Minute)
	wantError(t, m.SetUp(t.Context(), pod), `MountVolume.SetUp failed for volume "v" : failed to fetch token: serviceaccounts "robot" is forbidden: no`)
	wantFile(t, filepath.Join(dir, "vault/token"), "team/robot/3")

	// A torn down pod's tokens are forgotten.
	objects.tokenErr = nil
	if err := m.TearDown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if len(m.tokens.tokens) != 0 {
		t.Errorf("%d tokens are still kept", len(m.tokens.tokens))
	}
}

func TestTokenOwner(t *testing.T) {
	user := func(id int64) *corev1.SecurityContext { return &corev1.SecurityContext{RunAsUser: &id} }
	tests := []struct {
		name       string
		group, uid *int64
		containers []corev1.Container
		mode       uint32
		owner, gid uint32
	}{
		{"nobody in particular", nil, nil, []corev1.Container{{Name: "main"}}, 0o644, 0, 0},
		{"the pod's user", nil, ptr[int64](1000), []corev1.Container{{Name: "main"}}, 0o600, 1000, 0},
		{"all containers' user", nil, nil, []corev1.Container{{Name: "main", SecurityContext: user(7)}, {Name: "b", SecurityContext: user(7)}}, 0o600, 7, 0},
		{"different users", nil, ptr[int64](1000), []corev1.Container{{Name: "main", SecurityContext: user(7)}, {Name: "b"}}, 0o644, 0, 0},
		{"the pod's group", ptr[int64](50), nil, []corev1.Container{{Name: "main"}}, 0o640, 0, 50},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, _ := newTest(t)
			pod := podWith(projectedVolume(tokenSource("token", "", nil)))
			pod.Spec.Containers = test.containers
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: test.group, RunAsUser: test.uid}
			setUp(t, m, pod)
			wantMode(t, filepath.Join(hostPath(t, m, pod, corev1.VolumeMount{}), "token"), test.mode, test.owner, test.gid)
		})
	}
}

func TestRefreshErrorIsTold(t *testing.T) {
	m, objects := newTest(t)
	var told []string
	m.cfg.OnRefreshError = func(pod *corev1.Pod, err error) { told = append(told, pod.Name+": "+err.Error()) }
	objects.setConfigMap("c", map[string]string{"a": "1"})
	pod := podWith(configMapVolume("c"))
	setUp(t, m, pod)
	delete(objects.configMaps, "c")
	m.refresh(t.Context())
	if want := `p: MountVolume.SetUp failed for volume "v" : configmap "c" not found`; len(told) != 1 || told[0] != want {
		t.Errorf("told %q, want %q", told, want)
	}
	wantShown(t, hostPath(t, m, pod, corev1.VolumeMount{}), "a=1")
}

// What shows the pod's labels follows them at once, whatever has become of the other volumes.
func TestContentFollowsThePod(t *testing.T) {
	m, objects := newTest(t)
	objects.setConfigMap("c", map[string]string{"a": "1"})
	told := make(chan string, 10)
	m.cfg.OnRefreshError = func(_ *corev1.Pod, err error) { told <- err.Error() }
	labels := corev1.Volume{Name: "labels", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
		{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}}
	// The volume of the missing config map is the last one: when it is told of, the other one is done.
	pod := podWith(labels, configMapVolume("c"))
	changed := pod.DeepCopy()
	changed.Labels["active"] = "yes"
	m.PodChanged(changed)
	gone(t, m.podDir(pod.UID))
	setUp(t, m, pod)
	delete(objects.configMaps, "c")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	<-told // the first round of Run
	m.PodChanged(pod)
	m.PodChanged(changed)
	<-told
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	wantShown(t, m.volumeDir(pod.UID, "downward-api", "labels"), "labels=active=\"yes\"\napp=\"x\"")
	wantShown(t, m.volumeDir(pod.UID, "configmap", "v"), "a=1")

	if err := m.TearDown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	m.PodChanged(changed)
	gone(t, m.podDir(pod.UID))
}

// TestRefreshReadsOnce has two pods show one config map.
func TestRefreshReadsOnce(t *testing.T) {
	m, objects := newTest(t)
	objects.setConfigMap("c", map[string]string{"a": "1"})
	first, second := podWith(configMapVolume("c")), podWith(configMapVolume("c"))
	second.UID = "uid-2"
	setUp(t, m, first)
	setUp(t, m, second)
	objects.setConfigMap("c", map[string]string{"a": "2"})
	objects.reads = 0
	m.refresh(t.Context())
	if objects.reads != 1 {
		t.Errorf("the config map is read %d times, want once", objects.reads)
	}
	for _, pod := range []*corev1.Pod{first, second} {
		wantShown(t, hostPath(t, m, pod, corev1.VolumeMount{}), "a=2")
	}
	m.refresh(t.Context())
	if objects.reads != 2 {
		t.Error("the next refresh doesn't read again")
	}
}

// TestHalfWritten starts from what a crash may leave at each step of writing.
func TestHalfWritten(t *testing.T) {
	content := files{"a": {data: []byte("new"), mode: 0o644}, "d/b": {data: []byte("b"), mode: 0o644}}
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	tests := map[string]func(t *testing.T, dir string){
		"a directory half filled": func(t *testing.T, dir string) {
			mkdir(t, dir, "..2026_08_01_11_00_00.1")
			put(t, dir, "..2026_08_01_11_00_00.1/a", "old")
		},
		"a link not yet renamed": func(t *testing.T, dir string) { link(t, "..2026_08_01_11_00_00.1", dir, "..data_tmp") },
		"links not yet made": func(t *testing.T, dir string) {
			mkdir(t, dir, "..2026_08_01_11_00_00.1/d")
			put(t, dir, "..2026_08_01_11_00_00.1/a", "new")
			put(t, dir, "..2026_08_01_11_00_00.1/d/b", "b")
			link(t, "..2026_08_01_11_00_00.1", dir, "..data")
		},
		"the current directory lost":    func(t *testing.T, dir string) { link(t, "..2026_08_01_11_00_00.1", dir, "..data") },
		"a file where a link should be": func(t *testing.T, dir string) { put(t, dir, "a", "plain") },
		"a link to elsewhere":           func(t *testing.T, dir string) { link(t, "/etc/passwd", dir, "a") },
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			prepare(t, dir)
			for range 2 {
				if err := writeFiles(dir, content, nil, nil, now); err != nil {
					t.Fatal(err)
				}
			}
			wantShown(t, dir, "a=new", "d/b=b")
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 4 {
				t.Errorf("the volume holds %v, want the links ..data, a, d and one directory", entries)
			}
		})
	}
	dir := t.TempDir()
	link(t, "../../etc", dir, "..data")
	wantError(t, writeFiles(dir, content, nil, nil, now), "link to current files leads to")
}

func mkdir(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, dir, name string) {
	t.Helper()
	if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// TestReadersNeverSeeAMixture reads two files through ..data while they change together.
func TestReadersNeverSeeAMixture(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	update := func(text string) {
		if err := writeFiles(dir, files{"a": {data: []byte(text)}, "b": {data: []byte(text)}}, nil, nil, now); err != nil {
			t.Error(err)
		}
	}
	update("0")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 300 {
			update(string(rune('0' + i%10)))
		}
		close(stop)
	})
	for seen := 0; ; {
		select {
		case <-stop:
			wg.Wait()
			if seen == 0 {
				t.Error("nothing was ever there to be read")
			}
			return
		default:
		}
		current, err := os.Open(filepath.Join(dir, "..data"))
		if errors.Is(err, os.ErrNotExist) {
			continue // the link was read just before its directory was replaced and removed
		}
		if err != nil {
			t.Error(err)
			continue
		}
		root := "/proc/self/fd/" + itoa(current.Fd())
		a, errA := os.ReadFile(root + "/a")
		b, errB := os.ReadFile(root + "/b")
		if errA == nil && errB == nil {
			seen++
		}
		// Once replaced, the old directory may be gone; what is read from it must still fit together.
		if errA == nil && errB == nil && string(a) != string(b) {
			t.Errorf("one directory holds %q and %q", a, b)
		}
		current.Close()
	}
}
