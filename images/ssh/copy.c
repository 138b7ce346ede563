/* copy TARGET: copies the programs of /openssh into the folder TARGET, as the only process of an init container. */
#include <dirent.h>
#include <elf.h>
#include <err.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

/* As the kernel's own message begins, and the code with which shells end for it. */
#define FORMAT_ERROR "exec format error: "
#define CANNOT_RUN 126

/* The kind of CPU that a program is for; 0 if it is none. */
static unsigned machine_of(int program) {
    Elf64_Ehdr header = {0};

    return pread(program, &header, sizeof header, 0) == sizeof header ? header.e_machine : 0;
}

static const char *name_of(unsigned machine) {
    return machine == EM_X86_64 ? "x86-64" : machine == EM_AARCH64 ? "arm64" : "another CPU";
}

int main(int count, char **arguments) {
    DIR *folder = opendir("/openssh");
    struct dirent *entry;
    int target = count == 2 ? open(arguments[1], O_RDONLY | O_DIRECTORY) : -1;
    unsigned own = machine_of(open("/proc/self/exe", O_RDONLY));

    if (folder == NULL || target < 0)
        err(1, "copy TARGET: cannot open /openssh or the folder TARGET");
    while ((entry = readdir(folder)) != NULL) {
        struct stat found;
        int from, to;
        off_t done = 0;

        if (entry->d_name[0] == '.')
            continue;
        from = openat(dirfd(folder), entry->d_name, O_RDONLY);
        to = openat(target, entry->d_name, O_WRONLY | O_CREAT | O_TRUNC, 0755);
        if (from < 0 || to < 0 || fstat(from, &found) || fchmod(to, 0755))
            err(1, "cannot copy %s", entry->d_name);
        if (machine_of(from) != own)
            errx(CANNOT_RUN, FORMAT_ERROR "%s of ssh.image is for %s, and this node is %s", entry->d_name,
                 name_of(machine_of(from)), name_of(own));
        while (done < found.st_size)
            if (sendfile(to, from, &done, found.st_size - done) <= 0)
                err(1, "cannot copy %s", entry->d_name);
    }
    return 0;
}
