package server_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv"
)

// A list that is read in parts goes on as of its beginning until the database has forgotten that. Then the answer says
// where to go on as of now, of kinds that are kept in memory our way and of others.
func TestAListInPartsExpires(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t, func(o *config.Options) { o.KeepHistory = time.Second })
	core := env.Client.CoreV1()
	for i := range 9 {
		template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("t", i)}}
		template.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("t", i)}, Spec: template.Template.Spec}
		if _, err := core.PodTemplates("default").Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := core.Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, list := range map[string]func(context.Context, metav1.ListOptions) (metav1.ListMeta, []string, error){
		"pod templates": func(ctx context.Context, o metav1.ListOptions) (metav1.ListMeta, []string, error) {
			page, err := core.PodTemplates("default").List(ctx, o)
			if err != nil {
				return metav1.ListMeta{}, nil, err
			}
			return page.ListMeta, names(page.Items, func(p corev1.PodTemplate) string { return p.Name }), nil
		},
		"pods": func(ctx context.Context, o metav1.ListOptions) (metav1.ListMeta, []string, error) {
			page, err := core.Pods("default").List(ctx, o)
			if err != nil {
				return metav1.ListMeta{}, nil, err
			}
			return page.ListMeta, names(page.Items, func(p corev1.Pod) string { return p.Name }), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expires(t, env, list)
		})
	}
}

func names[T any](items []T, name func(T) string) (out []string) {
	for _, item := range items {
		out = append(out, name(item))
	}
	return out
}

// expires reads the first of three parts, waits until its token holds no more, and reads the rest with the new one.
func expires(t *testing.T, env *testenv.Env, list func(context.Context, metav1.ListOptions) (metav1.ListMeta, []string, error)) {
	t.Helper()
	first, found, err := list(t.Context(), metav1.ListOptions{Limit: 3})
	if err != nil || first.Continue == "" || len(found) != 3 {
		t.Fatalf("the first part is %v %v, %v", first, found, err)
	}
	// The world goes on meanwhile: what was read is not forgotten before something else was written.
	w := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "meanwhile-"}}
	if _, err := env.Client.CoreV1().ConfigMaps("default").Create(t.Context(), w, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var next string
	env.Eventually("the token expires", func(ctx context.Context) error {
		_, _, err := list(ctx, metav1.ListOptions{Limit: 3, Continue: first.Continue})
		var status apierrors.APIStatus
		if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
			return fmt.Errorf("the answer is %w", err)
		}
		next = status.Status().Continue
		return nil
	})
	if next == "" {
		t.Fatal("the answer names no token to go on with")
	}
	rest, more, err := list(t.Context(), metav1.ListOptions{Continue: next})
	if err != nil {
		t.Fatal(err)
	}
	found = append(found, more...)
	if fmt.Sprint(found) != "[t0 t1 t2 t3 t4 t5 t6 t7 t8]" {
		t.Errorf("the parts have %v", found)
	}
	if rest.ResourceVersion == first.ResourceVersion || rest.Continue != "" {
		t.Errorf("the first part is of %s, the rest is %+v", first.ResourceVersion, rest)
	}
}
