// Command s3server speaks S3 for tests of backups: it keeps what it gets in memory, and
// takes nobody but who signs with the key below. It prints where
// it listens, and ends with its standard input. It is a module of its own, so that the
// program's requirements do not move.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
	"github.com/rclone/gofakes3/signature"
)

func main() {
	backend := s3mem.New()
	if err := backend.CreateBucket(context.Background(), "fleet"); err != nil {
		log.Fatal(err)
	}
	keys := map[string]string{"backups": "a-long-secret"}
	signature.StoreKeys(keys)
	s3 := gofakes3.New(backend, gofakes3.WithV4Auth(keys), gofakes3.WithoutVersioning())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("http://" + listener.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that counts
		os.Exit(0)
	}()
	server := &http.Server{Handler: s3.Server(), ReadHeaderTimeout: time.Minute}
	log.Fatal(server.Serve(listener))
}
