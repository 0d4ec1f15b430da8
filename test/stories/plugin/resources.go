package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// resources prints which container has which device, as an exporter of metrics would ask.
func resources(ctx context.Context, _ []string) error {
	conn, err := grpc.NewClient(
		"unix:///var/lib/kubelet/pod-resources/kubelet.sock", grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		return err
	}
	list, err := api.NewPodResourcesListerClient(conn).List(ctx, &api.ListPodResourcesRequest{})
	if err := errors.Join(err, conn.Close()); err != nil {
		return err
	}
	for _, pod := range list.PodResources {
		for _, c := range pod.Containers {
			for _, d := range c.Devices {
				fmt.Println(pod.Namespace, pod.Name, c.Name, d.ResourceName, d.DeviceIds[0])
			}
		}
	}
	return nil
}
