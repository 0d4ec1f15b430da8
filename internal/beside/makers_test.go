package beside

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/beside/admit"
)

// madeBy is a pod of DaemonSet 1 that an account made so many seconds after noon; "" stands for one that is not marked.
func madeBy(account string, second int) *corev1.Pod {
	p := versioned("1", "7")
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "1",
		Controller: ptr.To(true)}}
	p.CreationTimestamp = metav1.NewTime(time.Date(2026, 3, 2, 12, 0, second, 0, time.UTC))
	if account != "" {
		p.Annotations = map[string]string{admit.MadeBy: account}
	}
	return p
}

// TestNothingIsReplacedThatAnotherAccountMakes: its pod would come back with the newest revision, again and again. What
// was seen and what was told are both named, once. The newest pod counts, in whatever order they are seen.
func TestNothingIsReplacedThatAnotherAccountMakes(t *testing.T) {
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		by   string
	}{
		"nobody has made any":               {},
		"the account that was told":         {pods: []*corev1.Pod{madeBy("", 1), madeBy("them", 2)}},
		"another one":                       {pods: []*corev1.Pod{madeBy("", 1), madeBy("others", 2)}, by: "others"},
		"... seen in another order":         {pods: []*corev1.Pod{madeBy("others", 2), madeBy("", 1)}, by: "others"},
		"... in the same second":            {pods: []*corev1.Pod{madeBy("", 2), madeBy("others", 2)}, by: "others"},
		"... and the right one since":       {pods: []*corev1.Pod{madeBy("others", 2), madeBy("", 3)}},
		"two others, of which the last one": {pods: []*corev1.Pod{madeBy("a", 2), madeBy("b", 3)}, by: "b"},
	} {
		api := fake.NewClientset(versioned("1", "7"))
		g, events := newGuest(t, api), record.NewFakeRecorder(9)
		g.cfg.Recorder = events
		g.toldOther = map[types.UID]string{}
		g.looked = make(chan struct{})
		close(g.looked)
		for _, p := range c.pods {
			g.makers.Set(p, g.cfg.Maker)
		}
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "1",
			Annotations: map[string]string{admit.UpdateStrategy: `{"type":"RollingUpdate"}`}}}
		g.tellOther(t.Context(), ds)
		g.tellOther(t.Context(), ds)
		told := len(events.Events)
		if (told == 1) != (c.by != "") || told > 1 {
			t.Errorf("%s: %d events tell of it", name, told)
		}
		err := g.DeletePod(t.Context(), api, &onePod{is: madeBy("", 1)},
			types.NamespacedName{Namespace: "default", Name: "agent-1"}, "1")
		if c.by == "" {
			if err != nil && strings.Contains(err.Error(), "--daemonset-account") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		for _, says := range []string{`the account "` + c.by + `"`, `--daemonset-account is "them"`} {
			if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(g.hindered(t.Context(), nil, ds), says) {
				t.Errorf("%s: deleting the pod tells %v, and the condition %q", name, err, g.hindered(t.Context(), nil, ds))
			}
		}
	}
}
