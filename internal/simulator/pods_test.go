package simulator

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestPodsAreKeptOnce: what a write answers is a copy, which goes when the informer tells the same. That is no news.
func TestPodsAreKeptOnce(t *testing.T) {
	config := &Config{Nodes: 1, Informers: nil}
	_ = config.complete()
	n := newNodes(config)
	n.start("sim-0001", 0)
	p := newPods(config, n)
	defer p.queue.ShutDown()
	at := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: version}, Spec: corev1.PodSpec{NodeName: "sim-0001"}}
	}
	tell := func(object *corev1.Pod) (news bool) {
		p.seen(object)
		if news = p.queue.Len() > 0; news {
			uid, _ := p.queue.Get()
			p.queue.Done(uid)
		}
		return news
	}
	if !tell(at("4")) {
		t.Error("a new pod is no news")
	}
	p.byUID["u"].object = at("5") // the answer to a write
	shared := at("5")
	if tell(shared) {
		t.Error("what a write answered is news")
	}
	if p.byUID["u"].object != shared {
		t.Error("the answer's copy is kept beside the one that all share")
	}
	if tell(at("4")) || p.byUID["u"].object != shared {
		t.Error("an older pod takes the place of a newer one")
	}
	if next := at("6"); !tell(next) || p.byUID["u"].object != next {
		t.Error("a newer pod is not taken over")
	}
}

// A deletion and a new pod of the same name can be one update: the old pod is gone then.
func TestAPodThatIsReplacedInOneUpdateIsGone(t *testing.T) {
	config := &Config{Nodes: 1}
	_ = config.complete()
	n := newNodes(config)
	n.start("sim-0001", 0)
	p := newPods(config, n)
	defer p.queue.ShutDown()
	pod := func(uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: uid}, Spec: corev1.PodSpec{NodeName: "sim-0001"}}
	}
	p.handler().OnAdd(pod("old"), false)
	p.handler().OnUpdate(pod("old"), pod("new"))
	if old, is := p.byUID["old"], p.byUID["new"]; old == nil || !old.gone || is == nil || is.gone {
		t.Errorf("the old pod is known as %+v, the new one as %+v", old, is)
	}
}
