package apiserver

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/everynode/everynode/internal/pki"
)

// What somebody writes into the config map by which API servers of others know this one is taken back at once, also
// after a watch of it has ended.
func TestWhatOthersTrustIsKeptTrue(t *testing.T) {
	bundle, err := pki.LoadOrCreate(t.TempDir(), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var watches []*watch.FakeWatcher
		client.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
			w := watch.NewFake()
			watches = append(watches, w)
			return true, w, nil
		})
		err := tellTrusted(t.Context(), bundle, client)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
		for range 2 {
			m, err := maps.Get(t.Context(), trustMap, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			m.Data["requestheader-client-ca-file"] = "mine"
			_, err = maps.Update(t.Context(), m, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			last := watches[len(watches)-1]
			last.Modify(&corev1.ConfigMap{ObjectMeta: m.ObjectMeta})
			synctest.Wait()
			m, err = maps.Get(t.Context(), trustMap, metav1.GetOptions{})
			if err != nil || m.Data["requestheader-client-ca-file"] == "mine" || time.Since(began) != 0 {
				t.Errorf("after %s it says %q, %v", time.Since(began), m.Data["requestheader-client-ca-file"], err)
			}
			last.Stop()
			time.Sleep(trustPause)
			synctest.Wait()
		}
		if len(watches) != 3 {
			t.Errorf("there were %d watches", len(watches))
		}
		watches[len(watches)-1].Stop()
	})
}
