package fetchpod

import (
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/everynode/everynode/internal/change/fetch"
)

func order() *Order {
	return &Order{Namespace: "logs", Owner: "agent", Daemon: "agent-x", DaemonUID: "u1", Node: "n1", Revision: "b.c",
		Image: "everynode:1", Deadline: 10 * time.Minute, Spec: &corev1.PodSpec{
			ServiceAccountName: "robot", ImagePullSecrets: []corev1.LocalObjectReference{{Name: "key"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, HostNetwork: true, HostPID: true,
			PriorityClassName: "system-node-critical", NodeSelector: map[string]string{"a": "b"},
			Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
			InitContainers: []corev1.Container{{Image: "init:1", ImagePullPolicy: corev1.PullAlways}},
			Containers: []corev1.Container{
				{Image: "agent:2", Command: []string{"/agent"}, Env: []corev1.EnvVar{{Name: "A"}},
					VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: "/host"}}},
				{Image: "agent:2"}, {Image: "side:1", ImagePullPolicy: corev1.PullNever},
			},
		}}
}

func TestThePodPullsAllImagesAndRunsNothingOfThem(t *testing.T) {
	o := order()
	p := o.Pod()
	var got []fetch.Image
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		got = append(got, fetch.Image{Image: c.Image, Policy: c.ImagePullPolicy})
		if !reflect.DeepEqual(c.Command, []string{Program}) || len(c.Args)+len(c.Env) > 0 || len(c.VolumeMounts) != 1 ||
			c.WorkingDir != "/" {
			t.Errorf("container %s is %+v", c.Name, c)
		}
	}
	want := []fetch.Image{{Image: "init:1", Policy: corev1.PullAlways}, {Image: "agent:2"},
		{Image: "side:1", Policy: corev1.PullNever}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("it pulls %v, want %v", got, want)
	}
	first := p.Spec.InitContainers
	if len(first) != 1 || first[0].Image != "everynode:1" || len(first[0].Command) != 0 ||
		!reflect.DeepEqual(first[0].Args, []string{Command, Program}) {
		t.Errorf("init containers are %+v", first)
	}
	if s := &p.Spec; s.NodeName != "n1" || len(s.Volumes) != 1 || s.Volumes[0].EmptyDir == nil || s.HostNetwork || s.HostPID ||
		s.PriorityClassName != "" || s.Priority != nil || len(s.Tolerations) != 1 || len(s.ImagePullSecrets) != 1 ||
		s.ServiceAccountName != "robot" || *s.AutomountServiceAccountToken || *s.EnableServiceLinks ||
		*s.ActiveDeadlineSeconds != 660 || s.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("its spec is %+v", s)
	}
}

func TestWhosePodItIs(t *testing.T) {
	o := order()
	p := o.Pod()
	daemon, revision := Of(p)
	owner := metav1.GetControllerOf(p)
	if !Is(p) || daemon != "u1" || revision != "b.c" || owner == nil || owner.Kind != "Pod" || owner.UID != "u1" {
		t.Errorf("it is for %s and %s, owned by %v", daemon, revision, owner)
	}
	if Is(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{Label: "u1"}}}) || Is(&corev1.Pod{}) {
		t.Error("another pod is taken for one that fetches")
	}
	again, other := *o, *o
	other.Revision = "c"
	if again.Name() != p.Name || other.Name() == p.Name || !strings.HasPrefix(p.Name, "agent-fetch-") {
		t.Errorf("names are %s, %s and %s", p.Name, again.Name(), other.Name())
	}
}

// A namespace that enforces the strictest standard takes it, whatever the daemon may do.
func TestThePodIsRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	refused := func(p *corev1.Pod) string {
		all := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &p.ObjectMeta, &p.Spec))
		return all.ForbiddenDetail()
	}
	p := order().Pod()
	if why := refused(p); why != "" {
		t.Error(why)
	}
	p.Spec.SecurityContext.RunAsNonRoot = nil
	if refused(p) == "" {
		t.Error("nothing is refused")
	}
}

func TestImagesThatAreLeftOut(t *testing.T) {
	many := &corev1.PodSpec{}
	for i := range MaxImages + 1 {
		many.Containers = append(many.Containers, corev1.Container{Image: strings.Repeat("a", i+1)})
	}
	volume := &corev1.PodSpec{Containers: []corev1.Container{{Image: "a"}},
		Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "b"}}}}}
	for name, c := range map[string]struct {
		spec *corev1.PodSpec
		n    int
		left int
	}{
		"none": {order().Spec, 3, 0}, "too many": {many, MaxImages, 1}, "of a volume": {volume, 2, 0},
	} {
		if got, left := Images(c.spec); len(got) != c.n || left != c.left {
			t.Errorf("%s: %d images, left out: %d", name, len(got), left)
		}
		o := order()
		o.Spec = c.spec
		if pulls := o.Pod().Spec.Containers; len(pulls) != c.n {
			t.Errorf("%s: the pod pulls %d images", name, len(pulls))
		}
	}
}

func waiting(name, reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func ended(name, id string, code int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, ImageID: id, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error"}}}
}

func TestWhatAPodTells(t *testing.T) {
	const absent = `failed to pull and unpack image "r/a:2": failed to resolve reference "r/a:2": r/a:2: not found`
	const away = `failed to do request: Head "https://r/v2/": dial tcp: lookup r: no such host`
	running := runs("a")
	type all = []corev1.ContainerStatus
	for name, c := range map[string]struct {
		phase         corev1.PodPhase
		first, others all
		before, want  Answer
	}{
		"nothing":      {},
		"it begins":    {others: all{waiting("a", "PodInitializing", ""), waiting("b", "PodInitializing", "")}},
		"one is there": {others: all{ended("a", "i", 0), waiting("b", "ContainerCreating", "")}},
		"both are": {others: all{ended("a", "i", 0), runs("b")},
			want: Answer{Reason: fetch.Fetched, Over: true}},
		"there, and cannot run": {others: all{running, waiting("b", "RunContainerError", "exec format error")},
			want: Answer{Reason: fetch.Fetched, Over: true}},
		"there, and did not run": {phase: corev1.PodFailed, others: all{ended("a", "i", 128), ended("b", "i", 0)},
			want: Answer{Reason: fetch.Fetched, Over: true}},
		"not found": {others: all{running, waiting("b", "ErrImagePull", absent)},
			want: Answer{Reason: fetch.NotFound, Why: absent}},
		"no registry": {others: all{running, waiting("b", "ErrImagePull", away)},
			want: Answer{Reason: fetch.Unreachable, Why: away}},
		"not found counts more": {others: all{waiting("a", "ErrImagePull", away), waiting("b", "ErrImagePull", absent)},
			want: Answer{Reason: fetch.NotFound, Why: absent}},
		"it waits and says why": {others: all{running, waiting("b", "ImagePullBackOff", "Back-off: ErrImagePull: "+absent)},
			want: Answer{Reason: fetch.NotFound, Why: "Back-off: ErrImagePull: " + absent}},
		"it waits": {others: all{running, waiting("b", "ImagePullBackOff", "Back-off pulling image")},
			before: Answer{Reason: fetch.Unreachable, Why: away}, want: Answer{Reason: fetch.Unreachable, Why: away}},
		"it waits, and nobody heard why": {others: all{running, waiting("b", "ImagePullBackOff", "Back-off pulling image")}},
		"never pulled": {others: all{running, waiting("b", "ErrImageNeverPull", "Container image is missing")},
			want: Answer{Reason: fetch.NotFound, Why: "Container image is missing"}},
		"no name": {others: all{running, waiting("b", "InvalidImageName", "")},
			want: Answer{Reason: fetch.NotFound, Why: "InvalidImageName"}},
		"something else": {others: all{running, waiting("b", "ErrImagePull", "odd")},
			want: Answer{Reason: fetch.PullFailed, Why: "odd"}},
		"refused by its node": {phase: corev1.PodFailed,
			want: Answer{Why: "the pod that fetches them failed: OutOfcpu", Over: true}},
		"too late": {phase: corev1.PodFailed, others: all{ended("a", "", 137), ended("b", "", 137)},
			before: Answer{Reason: fetch.NoSpace, Why: "full"}, want: Answer{Reason: fetch.NoSpace, Why: "full", Over: true}},
		"our image is not there": {first: all{waiting("program", "ErrImagePull", absent)},
			want: Answer{Why: "the image of Everynode does not start there: " + absent, Hindered: true}},
		"our image fails": {phase: corev1.PodFailed, first: all{ended("program", "i", 1)},
			want: Answer{Why: "the pod that fetches them failed: OutOfcpu", Over: true, Hindered: true}},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}}}
		p.Status = corev1.PodStatus{Phase: c.phase, InitContainerStatuses: c.first, ContainerStatuses: c.others}
		if c.phase == corev1.PodFailed {
			p.Status.Reason = "OutOfcpu"
		}
		if got := Read(p, c.before); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func runs(name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func TestADaemonsPodSaysWhatCameOfIt(t *testing.T) {
	at := time.Date(2026, 8, 1, 12, 0, 0, 5, time.UTC)
	r := fetch.Report{Revision: "b.c", At: at, Reason: fetch.NoSpace, Why: "full", Answered: at.Add(time.Second)}
	text := func(patch []byte) any {
		var p struct {
			Metadata struct {
				UID         string
				Annotations map[string]any
			}
		}
		if err := json.Unmarshal(patch, &p); err != nil || p.Metadata.UID != "u1" {
			t.Fatalf("%s: %v", patch, err)
		}
		return p.Metadata.Annotations[NoteName]
	}
	patch, err := Note("u1", &r)
	if err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{}
	p.Annotations = map[string]string{NoteName: text(patch).(string)}
	if got := Noted(p); got != r {
		t.Errorf("it says %+v, want %+v", got, r)
	}
	patch, err = Note("u1", nil)
	if err != nil || text(patch) != nil {
		t.Errorf("%s: %v", patch, err)
	}
	for _, other := range []string{"", "{", `{"At":"2026-08-01T12:00:00Z"}`} {
		p.Annotations[NoteName] = other
		if got := Noted(p); got != (fetch.Report{}) {
			t.Errorf("%q says %+v", other, got)
		}
	}
}

// emulated is what has a program for a processor run, before its file: QEMU's emulation where it is another one's; nil where
// that is not there.
func emulated(t *testing.T, arch string) []string {
	if arch == runtime.GOARCH {
		return []string{"env"}
	}
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	for _, name := range []string{"qemu-" + machine + "-static", "qemu-" + machine} {
		if qemu, err := exec.LookPath(name); err == nil {
			return []string{qemu}
		}
	}
	t.Logf("the program for %s is not run: there is no qemu-%s", arch, machine)
	return nil
}

func TestTheProgramEndsAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "end")
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		program, err := Build(arch)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, program, 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := elf.Open(file)
		if err != nil {
			t.Fatalf("%s: %v", arch, err)
		}
		if f.Machine != machine || f.Type != elf.ET_EXEC || len(f.Progs) != 1 || f.Progs[0].Filesz != uint64(len(program)) ||
			f.Entry != f.Progs[0].Vaddr+headers {
			t.Errorf("%s: %+v of %d bytes", arch, f.FileHeader, len(program))
		}
		_ = f.Close()
		by := emulated(t, arch)
		if by == nil {
			continue
		}
		if out, err := exec.Command(by[0], append(by[1:], file)...).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s, run by %v: %v: %q", arch, by, err, out)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Build("z80"); err == nil {
		t.Error("there is a program for any processor")
	}
}
