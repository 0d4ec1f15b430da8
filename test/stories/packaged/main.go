// Command packaged is a daemon as packages bring it along with a kind of its own: it
// waits until the kind is there, follows the objects of that kind in its namespace, and
// prints what each wants of it on this node.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	kind := schema.GroupVersionResource{Group: "fleet.example.com", Version: "v1", Resource: "collections"}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 10*time.Minute, os.Getenv("NAMESPACE"), nil)
	informer := factory.ForResource(kind).Informer()
	tell := func(what string) func(any) {
		return func(object any) {
			if o, ok := object.(*unstructured.Unstructured); ok {
				level, _, _ := unstructured.NestedString(o.Object, "spec", "level")
				every, _, _ := unstructured.NestedInt64(o.Object, "spec", "every")
				fmt.Printf("%s %s: level %s, every %d seconds, on %s\n", what, o.GetName(), level, every, os.Getenv("NODE_NAME"))
			}
		}
	}
	changed := func(_, object any) { tell("changed")(object) }
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    tell("has"),
		UpdateFunc: changed,
		DeleteFunc: tell("lost"),
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}
