package images

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/containerd/containerd/v2/client"
)

// namespace is the one in which containerd's CRI plugin looks for images.
const namespace = "k8s.io"

// connectTimeout bounds how long a containerd may take to accept a connection.
const connectTimeout = time.Minute

// Store is the image store of one containerd.
type Store struct {
	client      *client.Client
	snapshotter string
}

// OpenStore connects to the containerd that listens on a unix socket (a path
// without a scheme). snapshotter is the one its CRI plugin is configured with,
// into which images are unpacked.
func OpenStore(socket, snapshotter string) (*Store, error) {
	c, err := client.New(socket, client.WithDefaultNamespace(namespace), client.WithTimeout(connectTimeout))
	if err != nil {
		return nil, fmt.Errorf("connect to containerd at %s: %w", socket, err)
	}
	return &Store{client: c, snapshotter: snapshotter}, nil
}

// Close ends the connection.
func (s *Store) Close() error { return s.client.Close() }

// List returns the images' names and the digests they stand for.
func (s *Store) List(ctx context.Context) (map[string]string, error) {
	list, err := s.client.ImageService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	names := make(map[string]string, len(list))
	for _, image := range list {
		names[image.Name] = image.Target.Digest.String()
	}
	return names, nil
}

// Import reads a tar of an OCI image layout or of `docker save`, unpacks its
// images for this machine, and returns their names.
func (s *Store) Import(ctx context.Context, archive io.Reader) ([]string, error) {
	ctx, release, err := s.client.WithLease(ctx)
	if err != nil {
		return nil, fmt.Errorf("import images: lease: %w", err)
	}
	defer func() { _ = release(context.WithoutCancel(ctx)) }()
	list, err := s.client.Import(ctx, archive)
	if err != nil {
		return nil, fmt.Errorf("import images: %w", err)
	}
	names := make([]string, 0, len(list))
	for _, image := range list {
		if err := client.NewImage(s.client, image).Unpack(ctx, s.snapshotter); err != nil {
			return nil, fmt.Errorf("unpack image %s: %w", image.Name, err)
		}
		names = append(names, image.Name)
	}
	return names, nil
}

// Ensure imports the archive unless the store has all its images already.
func (s *Store) Ensure(ctx context.Context, archive *Archive) error {
	want, err := archive.Digests()
	if err != nil {
		return err
	}
	have, err := s.List(ctx)
	if err != nil {
		return err
	}
	if contains(have, want) {
		return nil
	}
	reader, writer := io.Pipe()
	go func() {
		_, err := archive.WriteTo(writer)
		writer.CloseWithError(err)
	}()
	_, err = s.Import(ctx, reader)
	_ = reader.CloseWithError(io.ErrClosedPipe) // lets the writer end if the import gave up
	return err
}

// contains reports whether have maps every name of want to the same digest.
func contains(have, want map[string]string) bool {
	for name, digest := range want {
		if have[name] != digest {
			return false
		}
	}
	return true
}
