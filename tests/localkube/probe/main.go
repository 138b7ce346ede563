// Command probe is what the lifecycle tests run in pods: a program that shows whether a pod's surroundings work.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("probe: serve | get URL | lookup NAME | size")
	}
	switch os.Args[1] {
	case "serve":
		serve()
	case "get":
		get(os.Args[2])
	case "lookup":
		addresses, err := net.LookupHost(os.Args[2])
		check(err)
		fmt.Println(addresses)
	case "size":
		info, err := os.Stat("/probe")
		check(err)
		fmt.Println(info.Size())
	}
}

func serve() {
	name, err := os.Hostname()
	check(err)
	fmt.Println("serving on", name)
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "this is", name) })
	http.HandleFunc("/megabyte", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1_000_000)) })
	check(http.ListenAndServe(":8080", nil))
}

func get(url string) {
	answer, err := http.Get(url)
	check(err)
	_, err = io.Copy(os.Stdout, answer.Body)
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
