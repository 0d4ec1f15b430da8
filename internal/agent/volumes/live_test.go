package volumes

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
)

// point has a pod's volumes show these copies of what they name.
func point(t *testing.T, pod *corev1.Pod, volumes ...content.Pointed) (now *corev1.Pod, key string) {
	t.Helper()
	to := content.Pointing{Content: strings.Repeat("b", 24), At: time.Unix(int64(len(volumes)), 0), Volumes: volumes}
	text, err := to.Text()
	if err != nil {
		t.Fatal(err)
	}
	now = pod.DeepCopy()
	now.Annotations = map[string]string{content.LiveName: text}
	return now, to.Key()
}

// The volumes of a running pod come to show what it is pointed at, whole or not at all, and go on to show it when
// the agent starts again.
func TestRunningPodIsPointedAtContent(t *testing.T) {
	m, objects := newTest(t)
	copied := "c-" + strings.Repeat("b", 24)
	objects.setConfigMap("c", map[string]string{"a": "old", "b": "old"})
	item := corev1.KeyToPath{Key: "a", Path: "x"}
	pod := podWith(configMapVolume("c"), projectedVolume(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, Items: []corev1.KeyToPath{item}}}))
	pod.Spec.Volumes[1].Name = "w"
	setUp(t, m, pod)
	dirs := []string{m.volumeDir(pod.UID, "configmap", "v"), m.volumeDir(pod.UID, "projected", "w")}
	wantShown(t, dirs[0], "a=old", "b=old")
	told := 0
	m.cfg.ContentShown = func(types.UID) { told++ }
	if is := m.Shows(pod.UID); is != (Shown{}) {
		t.Errorf("it says %+v before anything was pointed", is)
	}
	// What cannot be shown whole leaves all as it is.
	pointed, key := point(t, pod, content.Pointed{Ref: content.Ref{Kind: content.ConfigMap, Name: "c"}, Copy: copied})
	change := func(pod *corev1.Pod) {
		m.PodChanged(pod)
		m.refreshChanged(t.Context(), m.state(pod.UID))
	}
	change(pointed)
	if is := m.Shows(pod.UID); is.Key != key || is.Err == nil || told != 1 {
		t.Errorf("without the copy it says %+v, and told of it %d times", is, told)
	}
	wantShown(t, dirs[0], "a=old", "b=old")
	objects.setConfigMap(copied, map[string]string{"a": "new"})
	m.refresh(t.Context())
	if is := m.Shows(pod.UID); is.Key != key || is.Err != nil || told != 2 {
		t.Errorf("with the copy it says %+v, and told of it %d times", is, told)
	}
	wantShown(t, dirs[0], "a=new")
	wantShown(t, dirs[1], "x=new")
	// The author's object changes nothing any more, for another run of the agent too.
	objects.setConfigMap("c", map[string]string{"a": "newest"})
	again := New(m.cfg)
	setUp(t, again, pointed)
	again.refresh(t.Context())
	wantShown(t, dirs[0], "a=new")
	if is := again.Shows(pod.UID); is.Key != key || is.Err != nil {
		t.Errorf("another run says %+v", is)
	}
	// What nobody could have written shows nothing else.
	pointed.Annotations[content.LiveName] = strings.ReplaceAll(pointed.Annotations[content.LiveName], copied, "stolen")
	if err := m.SetUp(t.Context(), pointed); err == nil {
		t.Error("the pod is pointed at what is no copy")
	}
	wantShown(t, dirs[0], "a=new")
}

// With two volumes one does not go on alone, and a copy that is missing is not an object that may be missing.
func TestContentIsShownWholeOrNotAtAll(t *testing.T) {
	m, objects := newTest(t)
	b := strings.Repeat("b", 24)
	objects.setConfigMap("c", map[string]string{"a": "old"})
	objects.setConfigMap("d", map[string]string{"k": "old"})
	pod := podWith(configMapVolume("c"), configMapVolume("d", corev1.KeyToPath{Key: "k", Path: "k"}), configMapVolume("o"))
	pod.Spec.Volumes[1].Name, pod.Spec.Volumes[2].Name = "w", "o"
	pod.Spec.Volumes[2].ConfigMap.Optional = ptr(true)
	objects.setConfigMap("o", map[string]string{"x": "old"})
	setUp(t, m, pod)
	shows := func(text string) {
		t.Helper()
		for volume, file := range map[string]string{"v": "a", "w": "k", "o": "x"} {
			wantShown(t, m.volumeDir(pod.UID, "configmap", volume), file+"="+text)
		}
	}
	shows("old")
	pointed, key := point(t, pod, content.Pointed{Ref: content.Ref{Kind: content.ConfigMap, Name: "c"}, Copy: "c-" + b},
		content.Pointed{Ref: content.Ref{Kind: content.ConfigMap, Name: "d"}, Copy: "d-" + b},
		content.Pointed{Ref: content.Ref{Kind: content.ConfigMap, Name: "o"}, Copy: "o-" + b})
	notYet := func(why string) {
		t.Helper()
		if is := m.Shows(pod.UID); is.Key != key || is.Err == nil || !strings.Contains(is.Err.Error(), why) {
			t.Errorf("it says %+v, want %q", is, why)
		}
		shows("old")
	}
	m.PodChanged(pointed)
	ending, end := context.WithCancel(t.Context())
	end()
	m.refreshChanged(ending, m.state(pod.UID))
	if is := m.Shows(pod.UID); is != (Shown{}) {
		t.Errorf("an agent that ends says %+v", is)
	}
	shows("old")
	objects.setConfigMap("c-"+b, map[string]string{"a": "new"})
	objects.setConfigMap("d-"+b, map[string]string{"other": "new"})
	m.PodChanged(pointed)
	m.refreshChanged(t.Context(), m.state(pod.UID))
	notYet("key: k")
	objects.setConfigMap("d-"+b, map[string]string{"k": "new"})
	m.refresh(t.Context())
	notYet("o-" + b)
	if err := m.SetUp(t.Context(), pointed); err == nil {
		t.Error("a pod is set up without all of its content")
	}
	notYet("o-" + b)
	objects.setConfigMap("o-"+b, map[string]string{"x": "new"})
	m.refresh(t.Context())
	if is := m.Shows(pod.UID); is != (Shown{Key: key}) {
		t.Errorf("with all of it it says %+v", is)
	}
	shows("new")
}

// Who sets up volumes may have looked at the pod before it was pointed at content.
func TestEarlierPodDoesNotTakeContentBack(t *testing.T) {
	m, objects := newTest(t)
	copied := "c-" + strings.Repeat("b", 24)
	objects.setConfigMap("c", map[string]string{"a": "old"})
	objects.setConfigMap(copied, map[string]string{"a": "new"})
	pod := podWith(configMapVolume("c"))
	pod.ResourceVersion = "9"
	setUp(t, m, pod)
	pointed, _ := point(t, pod, content.Pointed{Ref: content.Ref{Kind: content.ConfigMap, Name: "c"}, Copy: copied})
	pointed.ResourceVersion = "10"
	m.PodChanged(pointed)
	m.refreshChanged(t.Context(), m.state(pod.UID))
	setUp(t, m, pod)
	m.PodChanged(pod)
	m.refreshChanged(t.Context(), m.state(pod.UID))
	m.refresh(t.Context())
	wantShown(t, m.volumeDir(pod.UID, "configmap", "v"), "a=new")
}

// While a pod cannot show what it is pointed at, its volumes keep their content and tell what the node knows: tokens are
// replaced, and labels are the pod's, also by an agent that started again.
func TestTokensAreReplacedWhileContentIsMissing(t *testing.T) {
	m, objects := newTest(t)
	b := strings.Repeat("b", 24)
	objects.setConfigMap("c", map[string]string{"a": "old", "f": "old"})
	objects.setConfigMap("d", map[string]string{"k": "old"})
	named := func(name string) corev1.VolumeProjection {
		return corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
	}
	both := projectedVolume(tokenSource("token", "", ptr[int64](600)), named("c"), corev1.VolumeProjection{
		DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}})
	missing := projectedVolume(named("d"), tokenSource("in/token", "vault", ptr[int64](600)))
	missing.Name = "w"
	pod := withGroup(podWith(both, missing), 4321)
	setUp(t, m, pod)
	dirs := []string{m.volumeDir(pod.UID, "projected", "v"), m.volumeDir(pod.UID, "projected", "w")}
	shows := func(m *Manager, text, labels, token, other string) {
		t.Helper()
		m.refresh(t.Context())
		wantShown(t, dirs[0], "a="+text, "f="+text, "labels="+labels, "token=team/robot/"+token)
		wantShown(t, dirs[1], "in/token=team/robot/"+other, "k="+text)
		wantMode(t, dirs[0]+"/a", 0o644, 0, 4321)
		wantMode(t, dirs[0]+"/token", 0o640, 0, 4321)
	}
	shows(m, "old", `app="x"`, "1", "2")
	pointed, key := point(t, pod, content.Pointed{Ref: content.Ref{Kind: content.ConfigMap, Name: "c"}, Copy: "c-" + b},
		content.Pointed{Ref: content.Ref{Kind: content.ConfigMap, Name: "d"}, Copy: "d-" + b})
	pointed.Labels = map[string]string{"app": "y"}
	objects.setConfigMap("c-"+b, map[string]string{"a": "new", "f": "new"})
	m.PodChanged(pointed)
	m.refreshChanged(t.Context(), m.state(pod.UID))
	shows(m, "old", `app="y"`, "1", "2")
	// What there was is gone by now.
	delete(objects.configMaps, "c")
	delete(objects.configMaps, "d")
	objects.clock.Step(9 * time.Minute)
	shows(m, "old", `app="y"`, "3", "4")
	if is := m.Shows(pod.UID); is.Key != key || is.Err == nil {
		t.Errorf("it says %+v", is)
	}
	again := New(m.cfg)
	if err := again.SetUp(t.Context(), pointed); err == nil {
		t.Error("a pod is set up without all of its content")
	}
	shows(again, "old", `app="y"`, "5", "6")
	objects.setConfigMap("d-"+b, map[string]string{"k": "new"})
	shows(again, "new", `app="y"`, "5", "6")
}

// A pod that never had its content gets no part of it, and no token alone.
func TestNoTokenComesBeforeTheContent(t *testing.T) {
	m, objects := newTest(t)
	b := strings.Repeat("b", 24)
	objects.setConfigMap("c", map[string]string{"a": "old"})
	pod := podWith(projectedVolume(tokenSource("token", "", nil), corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}))
	pointed, _ := point(t, pod, content.Pointed{Ref: content.Ref{Kind: content.ConfigMap, Name: "c"}, Copy: "c-" + b})
	if err := m.SetUp(t.Context(), pointed); err == nil {
		t.Error("a pod is set up without its content")
	}
	gone(t, m.volumeDir(pod.UID, "projected", "v"))
}
