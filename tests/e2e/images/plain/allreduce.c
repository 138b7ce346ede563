/* Sums the ranks' numbers on all of them: a program of MPI that is not Python. */
#include <mpi.h>
#include <stdio.h>

int main(int count, char **arguments) {
    int rank, ranks, sum;

    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("RESULT {\"framework\": \"mpi\", \"ranks\": %d, \"sum\": %d}\n", ranks, sum);
    return MPI_Finalize();
}
