package extensions

import (
	"errors"
	"testing"
	"time"

	crdfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// TestStoppedBeforeDefinitionsAreKnown: who asks whether the definitions are known hears so when they are, and hears no
// more than that when the server is stopped before.
func TestStoppedBeforeDefinitionsAreKnown(t *testing.T) {
	for name, answered := range map[string]bool{"known": true, "never": false} {
		t.Run(name, func(t *testing.T) {
			client := crdfake.NewSimpleClientset()
			if !answered {
				client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("no answer")
				})
			}
			informers := newStoppable(externalversions.NewSharedInformerFactory(client, 0))
			synced := make(chan bool)
			go func() {
				synced <- informers.Apiextensions().V1().CustomResourceDefinitions().Informer().HasSynced()
			}()
			stop := make(chan struct{})
			informer := informers.SharedInformerFactory.Apiextensions().V1().CustomResourceDefinitions().Informer()
			informers.Start(stop)
			if !answered {
				select {
				case <-synced:
					t.Error("it answers before the definitions are known")
				case <-time.After(300 * time.Millisecond):
				}
				close(stop)
			} else {
				defer close(stop)
			}
			select {
			case <-synced:
			case <-time.After(time.Minute):
				t.Fatal("no answer")
			}
			if informer.HasSynced() != answered {
				t.Errorf("the definitions are known: %v", !answered)
			}
		})
	}
}
