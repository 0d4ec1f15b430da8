package resourcequota

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// started is a plugin as the server makes it, with a quota for one more pod in the namespace ns.
func started(t testing.TB) (*Plugin, *fake.Clientset) {
	t.Helper()
	amounts := func(n string) corev1.ResourceList { return corev1.ResourceList{"pods": resource.MustParse(n)} }
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q", ResourceVersion: "1"}, Spec: corev1.ResourceQuotaSpec{Hard: amounts("3")},
		Status: corev1.ResourceQuotaStatus{Hard: amounts("3"), Used: amounts("2")}}
	client := fake.NewClientset(quota)
	factory := informers.NewSharedInformerFactory(client, 0)
	p, err := New(factory.Core().V1().ResourceQuotas().Informer())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	p.SetExternalKubeClientSet(client)
	p.SetExternalKubeInformerFactory(factory)
	p.SetDrainedNotification(ctx.Done())
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	deadline, end := context.WithTimeout(ctx, time.Minute)
	defer end()
	factory.WaitForCacheSync(deadline.Done())
	return p, client
}

func create(namespace string) admission.Attributes {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	return admission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), namespace, "p", corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false, nil)
}

func TestOnlyNamespacesWithAQuotaAreCharged(t *testing.T) {
	p, client := started(t)
	if !p.none("other") || p.none("ns") {
		t.Fatal("it is not known where a quota is")
	}
	for range 5 {
		if err := p.Validate(t.Context(), create("other"), nil); err != nil {
			t.Errorf("in a namespace without a quota: %v", err)
		}
	}
	if err := p.Validate(t.Context(), create("ns"), nil); err != nil {
		t.Errorf("the last one that fits: %v", err)
	}
	// The fake API counts no versions, so what was charged is known once the informer has it.
	shown := func() bool {
		known, _, _ := p.quotas.GetIndexer().GetByKey("ns/q")
		used := known.(*corev1.ResourceQuota).Status.Used["pods"]
		return used.Value() == 3
	}
	for end := time.Now().Add(time.Minute); !shown() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	q, err := client.CoreV1().ResourceQuotas("ns").Get(t.Context(), "q", metav1.GetOptions{})
	if used := q.Status.Used["pods"]; err != nil || used.Value() != 3 {
		t.Errorf("charged %v, %v", q.Status.Used, err)
	}
	if err := p.Validate(t.Context(), create("ns"), nil); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3") {
		t.Errorf("one too many: %v", err)
	}
}

// What a write pays where no quota is.
func BenchmarkNoQuota(b *testing.B) {
	p, _ := started(b)
	a := create("other")
	for b.Loop() {
		if err := p.Validate(b.Context(), a, nil); err != nil {
			b.Fatal(err)
		}
	}
}
