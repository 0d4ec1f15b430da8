package apiserver

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/pki"
)

// trustMap is the config map in kube-system from which API servers of others learn how
// they recognize clients of the cluster, and this server when it speaks for one.
const trustMap = "extension-apiserver-authentication"

// trustInterval is how often it is looked at whether somebody has changed it, beside the watch. After a watch that
// ended there is a pause.
const trustInterval, trustPause = time.Minute, 5 * time.Second

// tellTrusted writes the config map, and keeps it true until ctx ends.
func tellTrusted(ctx context.Context, bundle *pki.Bundle, client kubernetes.Interface) error {
	changed := make(chan struct{}, 1)
	poke := func() {
		select {
		case changed <- struct{}{}:
		default: // one that waits is enough
		}
	}
	bundle.OnChange(poke)
	if err := writeTrusted(ctx, bundle, client); err != nil {
		return err
	}
	go followTrusted(ctx, client, poke)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			case <-time.After(trustInterval):
			}
			if err := writeTrusted(ctx, bundle, client); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "API servers of others do not learn of changed authorities")
			}
		}
	}()
	return nil
}

// followTrusted calls changed each time that somebody writes the config map, until ctx ends. Who may write config maps
// in kube-system is not to be trusted by API servers of others for a minute.
func followTrusted(ctx context.Context, client kubernetes.Interface, changed func()) {
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", trustMap).String()}
	for {
		w, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Watch(ctx, only)
		if err == nil {
			for range w.ResultChan() {
				changed()
			}
			w.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(trustPause): // The next watch begins with what there is.
		}
	}
}

func trusted(bundle *pki.Bundle) map[string]string {
	return map[string]string{
		"client-ca-file":                     string(bundle.CAPEM()),
		"requestheader-client-ca-file":       string(bundle.FrontProxyCAPEM()),
		"requestheader-allowed-names":        `["` + pki.FrontProxyUser + `"]`,
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-uid-headers":          `["X-Remote-Uid"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}
}

func writeTrusted(ctx context.Context, bundle *pki.Bundle, client kubernetes.Interface) error {
	api := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	present, err := api.Get(ctx, trustMap, metav1.GetOptions{})
	switch want := trusted(bundle); {
	case apierrors.IsNotFound(err):
		_, err = api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: trustMap}, Data: want},
			metav1.CreateOptions{})
	case err == nil && !maps.Equal(present.Data, want):
		present.Data = want
		_, err = api.Update(ctx, present, metav1.UpdateOptions{})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return nil // somebody else was quicker; the next look shows whether it is right
	}
	if err != nil {
		return fmt.Errorf("write the config map %s: %w", trustMap, err)
	}
	return nil
}
