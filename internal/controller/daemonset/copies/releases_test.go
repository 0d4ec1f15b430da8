package copies

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
)

// What a template can name as content is read, whatever its type says: else it would count as missing, and pods would
// name a copy that there never is. Of what no template can name nothing is kept.
func TestWhatCanBeContentIsRead(t *testing.T) {
	const helms = corev1.SecretType("helm.sh/release.v1")
	secret := func(name string) corev1.Secret {
		return corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Type: helms,
			Data: map[string][]byte{"release": []byte("large")}}
	}
	client := fake.NewClientset()
	client.PrependReactor("list", "secrets", func(a k8stesting.Action) (bool, runtime.Object, error) {
		list := &corev1.SecretList{}
		if a.(k8stesting.ListAction).GetListRestrictions().Fields.Matches(fields.Set{"type": string(helms)}) {
			list.Items = append(list.Items, secret("kept"), secret("sh.helm.release.v1.app.v1"))
		}
		return true, list, nil
	})
	client.PrependWatchReactor("secrets", func(a k8stesting.Action) (bool, watch.Interface, error) {
		if w, is := a.(k8stesting.WatchActionImpl); is && w.ListOptions.SendInitialEvents != nil { // as older servers answer
			return true, nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
		}
		return true, watch.NewFake(), nil
	})
	seen := make(chan *corev1.Secret, 10)
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { seen <- obj.(*corev1.Secret) }}
	Access{Client: client}.Follow(t.Context(), "ns", content.Secret, handler, func(contents.Sight) {})
	held := map[string]int{}
	for len(held) < 2 {
		select {
		case s := <-seen:
			held[s.Name] = len(s.Data)
			named := &corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: s.Name}}}}}
			if is := len(content.Refs(named)) == 1; is != (len(s.Data) > 0) {
				t.Errorf("Secret %s can be content: %t, and %d keys of it are kept", s.Name, is, len(s.Data))
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("of two Secrets %v are read", held)
		}
	}
}
